"""Lists of jobs in an installation with many of them: `python -m tests.support.large_lists`.

For each page and request: the documents that Firestore would read, and the CPU time of the server,
with the store in memory. On Firestore, each job that is read takes about a millisecond more.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from bench.counting import Counts, counting_store
from tests.integration.api.client import OWNER, TOKENS, Api, an_app
from tests.support.console_budgets import SMALL_JOB
from tests.support.large_console import LargeConsole
from tests.support.world import World
from trainmaster_local.memory.access import MemoryAccess
from trainmaster_local.memory.store import MemoryStore

REPETITIONS = 3
PAGES = {
    "console, list of 50": "/jobs",
    "console, list of 1,000": "/jobs?size=1000",
    "console, list by state": "/jobs?state=QUEUED",
    "console, list by user": "/jobs?user=anna@example.com",
    "console, list by label": "/jobs?label=team%3Da",
    "console, list by text": "/jobs?q=digits_00001",
}
REQUESTS: dict[str, dict[str, str]] = {
    "API, first page": {},
    "API, page of 1,000": {"pageSize": "1000"},
    "API, by state, 100": {"filter": "state=QUEUED"},
    "API, by an id that no job has": {"filter": "jobId=none"},
}


def main() -> None:
    """Submit the jobs, and print a line for each page and request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    logging.disable(logging.WARNING)
    site = LargeConsole()
    for number in range(jobs):
        site.submit(f"digits_{number:05d}", {"trainingInput": SMALL_JOB})
    counts = Counts()
    site.store = cast("MemoryStore", counting_store(site.store, counts))
    site.restart()
    for name, path in PAGES.items():
        measure(name, partial(status_of, site, path), counts)
    with pytest.MonkeyPatch.context() as patch:
        world = World(store=site.store, now=site.now)
        access = MemoryAccess(TOKENS)
        api = Api(world, access, an_app(world, access, patch).test_client())
        for name, query in REQUESTS.items():
            measure(name, partial(list_jobs, api, query), counts)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # in KiB on Linux
    sys.stdout.write(f"{jobs} jobs; this process with all of them: {mib:.0f} MiB\n")


def status_of(site: LargeConsole, path: str) -> int:
    """Return the HTTP status of a page of the console."""
    return site.get(path)[0]


def list_jobs(api: Api, query: dict[str, str]) -> int:
    """Return the HTTP status of a list of jobs by the API."""
    return api.send("GET", "/v1/projects/my-project/jobs", token=OWNER, **query)[0]


def measure(name: str, request: Callable[[], int], counts: Counts) -> None:
    """Print the least time of some repetitions, and the reads of one."""
    times, status = [], 0
    for _ in range(REPETITIONS):
        counts.reads_by_call.clear()
        began = time.process_time()
        status = request()
        times.append(time.process_time() - began)
    if status != 200:
        raise RuntimeError(f"{name}: {status}")
    sys.stdout.write(f"{name}: {counts.reads:,} reads, {min(times) * 1_000:.0f} ms\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
