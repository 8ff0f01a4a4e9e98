"""Budgets of the console's pages: the server's CPU time, and sizes. docs/benchmarks.md describes
them.

The store is in memory, so that Firestore's time is not measured.
"""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from bench.figures import Figure, Figures
from tests.support.large_console import LargeConsole
from trainmaster.console.rendering import STATIC

MILLISECONDS: Final = 1_000
HTML_KB_MAX: Final = 60.0
"""Compressed size of a page, in kB."""
STATIC_KB_MAX: Final = 45.0
"""Compressed size of all files that pages load, in kB."""
POLL_BYTES_MAX: Final = 512.0
"""Size of the answer to a poll of a page that has not changed."""
ELEMENTS_MAX: Final = 12_000.0
"""HTML elements of a page of a job."""
LANES_ELEMENTS_MAX: Final = 16_000.0
"""HTML elements of a page of a job whose timeline shows each of 1,000 replicas. A replica's lane
has 8 elements, and 2 for each phase, such as its boot.
"""
SMALL_MS_MAX: Final = 250.0
"""Server's time of a page with little on it."""
LARGE_JOB_MS_MAX: Final = 800.0
"""Server's time of a page of a job of 1,000 replicas."""
LONG_MS_MAX: Final = 1_000.0
"""Server's time of a log of 1,000 lines, or of a tuning job's page."""


def server_figures(site: LargeConsole, pages: Mapping[str, Page], repetitions: int) -> Figures:
    """Return the figures that need no browser, by name: of the static files, of a cold cache, and
    of each page.
    """
    figures = {"console: static files": Figure(_static_kb(), "kB gz", value_max=STATIC_KB_MAX)}
    large = next(name for name, page in pages.items() if page.path == "/jobs/large")
    figures[f"console: server with a cold cache, {large}"] = Figure(
        _cold_ms(site, "/jobs/large"), "ms", value_max=2_500.0
    )
    for name, page in pages.items():
        figures |= _server(site, name, page, repetitions)
    return figures


def prepare(site: LargeConsole, jobs: int, replicas: int, trials: int) -> None:
    """Submit `jobs` jobs that have not run, two that run, and a tuning job."""
    for number in range(jobs):
        site.submit(f"digits_{number:05d}", {"trainingInput": SMALL_JOB})
    site.run("small", replicas=3, incidents=3)
    site.run("large", replicas, incidents=1)
    site.tune("tuned", trials, parameters=8)


class Page(NamedTuple):
    """A page with its budgets: the server's time in milliseconds, and the number of elements (None:
    any).
    """

    path: str
    server_ms_max: float
    elements_max: float | None = None


def measured_pages(jobs: int, replicas: int, trials: int) -> dict[str, Page]:
    """Return the pages that are measured, by name."""
    return {
        "list of 50 jobs": Page("/jobs", SMALL_MS_MAX),
        f"list of {min(jobs, 1_000)} jobs": Page(f"/jobs?size={min(jobs, 1_000)}", 1_500.0),
        "job of 3 replicas": Page("/jobs/small", SMALL_MS_MAX, ELEMENTS_MAX),
        f"job of {replicas} replicas": Page("/jobs/large", LARGE_JOB_MS_MAX, ELEMENTS_MAX),
        f"job of {replicas} replicas, all lanes": Page(
            "/jobs/large?replicas=1", LARGE_JOB_MS_MAX, LANES_ELEMENTS_MAX
        ),
        f"comparison with a job of {replicas} replicas": Page(
            "/compare?job=small&job=large", LARGE_JOB_MS_MAX
        ),
        "log of 1000 lines": Page("/jobs/small/logs", LONG_MS_MAX),
        f"tuning job of {trials} trials": Page("/jobs/tuned", LONG_MS_MAX),
        f"tuning job of {trials} trials, one range": Page(
            "/jobs/tuned?brush=p0~0.2~0.8", LONG_MS_MAX
        ),
    }


def _server(site: LargeConsole, name: str, page: Page, repetitions: int) -> Figures:
    """Return the figures of one page: the least time of several requests, its sizes, and the size
    of the answer to a poll.
    """
    path, times = page.path, []
    status, body, headers = site.get(path)
    for _ in range(repetitions):
        began = time.process_time()
        status, body, headers = site.get(path)
        times.append((time.process_time() - began) * MILLISECONDS)
    if status != 200:
        raise RuntimeError(f"{path} answers {status}")
    unchanged, empty, sent = site.get(path, **{"If-None-Match": headers["ETag"]})
    if unchanged != 304:
        raise RuntimeError(f"a poll of {path} answers {unchanged}")
    poll_bytes = len(empty) + sum(len(f"{key}: {value}\r\n") for key, value in sent.items())
    elements = len(re.findall(rb"<[a-z]", body))
    return {
        f"console: server, {name}": Figure(min(times), "ms", value_max=page.server_ms_max),
        f"console: HTML, {name}": Figure(
            len(gzip.compress(body)) / 1_000, "kB gz", value_max=HTML_KB_MAX
        ),
        f"console: elements, {name}": Figure(elements, "elements", value_max=page.elements_max),
        f"console: unchanged poll, {name}": Figure(poll_bytes, "bytes", value_max=POLL_BYTES_MAX),
    }


def _cold_ms(site: LargeConsole, path: str) -> float:
    """Return the time of the first request to a new instance. The ledger is not in its cache."""
    site.restart()
    began = time.process_time()
    site.get(path)
    return (time.process_time() - began) * MILLISECONDS


def _static_kb() -> float:
    """Return the compressed size of all files that a page may load. Licences are not among them."""
    files = (path for path in STATIC.rglob("*.*") if path.suffix in {".css", ".js", ".svg"})
    return sum(len(gzip.compress(path.read_bytes())) for path in files) / 1_000


SMALL_JOB: Final = {
    "scaleTier": "BASIC",
    "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
    "pythonModule": "trainer.task",
    "region": "us-central1",
    "runtimeVersion": "2.21",
}
"""The training input of a job with one VM."""
