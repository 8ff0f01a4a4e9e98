"""Entrances for what programs write: their output, metrics, event files, and series in Cloud
Monitoring.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from itertools import chain
from typing import Final
from zlib import crc32

from infra.webhook import main as webhook
from tests.fuzz.entrance import Entrance, Entrances, RefusedError, text_of
from tests.support.console_site import Site
from tests.support.jobs import CHIEF
from trainmaster.agent.metric.event_records import CorruptRecordError, parse_records
from trainmaster.agent.metric.trial_metric import parse_measurements
from trainmaster.agent.program.stacks import find_stacks, innermost_frames
from trainmaster.agent.program.tracebacks import parse_traceback
from trainmaster.agent.progress.printed import read_printed
from trainmaster.agent.progress.status_server import parse_status
from trainmaster.agent.reporting.log_entry import entry_of
from trainmaster.agent.reporting.serial_console import Stream
from trainmaster.cli.mcp import CHARS_MAX, MARK, UNTRUSTED, _answer
from trainmaster.core.intake.registry_images import parse_registry_image
from trainmaster.core.model.vm_names import job_hash_in, vm_name
from trainmaster.gcp.vm_labels import parse_heartbeat
from trainmaster.jobspec.fields.job_id import job_id_from
from trainmaster.messaging.reported_metric import decode_reported_metric
from trainmaster.ports.metrics import RESOURCES, Label, Metric
from trainmaster.presentation.log_reader import parse_entry
from trainmaster.presentation.printable import make_visible, printable
from trainmaster.presentation.progress import read_progress

_RUNNING: Final = {"attempt": "1", "incarnation": "1"}
_PAGES: Final = ("/jobs/digits_1", "/compare?job=digits_1", "/jobs/digits_1/resources")
_SHOWN: Final = (
    {"message": "m", "severity": "INFO"},
    {"attempt": 1, "measurements": [[1, 0.5]]},
    {"training/hptuning/metric": 0.5, "global_step": "1"},
    b"2026-11-21T03:00:00+00:00",
    b"us-docker.pkg.dev/my-project/images/trainer:1",
    vm_name("digits_1", CHIEF).encode(),
)
_TRAINED: Final = (
    {"trainerStatus": {"progressPercentage": 5, "metrics": [{"name": "a", "value": 1}]}},
    b"Epoch 3/10 step 45/100 loss: 0.5 accuracy=0.25\n100%| | 1/9 [00:01<00:02, 1it/s]",
    b'Traceback (most recent call last):\n  File "a/b.py", line 3, in f\nValueError: x',
    b'Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File "a"',
)
_SERIES: Final = (
    [
        {**_RUNNING, "name": "share", "source": "reported", "values": [0.1, 0.2]},
        {**_RUNNING, "name": "step", "source": "printed", "values": [2**53, 1]},
        {**_RUNNING, "name": "steps", "values": [2**53]},
        {**_RUNNING, "name": "metric/loss", "values": [1.7e308, -1.7e308, 5e-324]},
    ],
    [{**_RUNNING, "name": "metric/loss", "alone": 1, "values": [1e18, 1e18]}],
    [
        {"metric": metric, "task_id": "chief-0", "gpu": "0", "values": [0, 1e308]}
        for metric in RESOURCES
    ],
)
_RECORD: Final = (8).to_bytes(8, "little") + b"\0" * 4 + b"\x09" + b"\0" * 7 + b"\0" * 4


def _shown(data: bytes) -> None:
    """Read what programs print, and what they write to Cloud Logging, Cloud Monitoring and guest
    attributes.
    """
    text = text_of(data, 256 << 10)  # Cloud Logging's limit of an entry
    list(parse_measurements(text, "loss"))
    decode_reported_metric(text)
    parse_heartbeat(text)
    assert not set(make_visible(printable(text))) & set("\x07\x9b\u202e")
    for line in text.split("\n")[:50]:
        entry = entry_of(line, Stream.STDOUT)
        parse_entry({"timestamp": "2026-11-21T03:00:00Z", "labels": {}, **entry})
    job_hash_in(text), parse_registry_image(text), job_id_from(text[:5000], "1")


def _trained(data: bytes) -> None:
    """Read what a program prints of its progress and its errors, and what it reports by HTTP."""
    text = text_of(data, 64 << 10)  # what an agent keeps of a stream
    readings = [read_printed(text)]
    with suppress(KeyError, TypeError, AttributeError, ValueError, RecursionError):
        readings.append(parse_status(json.loads(text)))  # `StatusServer.answer` refuses for these
    for reading in readings:
        assert all(map(math.isfinite, reading.metrics.values()))
        assert all(map(str.isprintable, reading.metrics))
        assert reading.share is None or 0 <= reading.share <= 1
    parse_traceback(text, "trainer")
    innermost_frames(find_stacks(text), "trainer")


def _told(data: bytes) -> None:
    """Show text to an agent that uses the tools of `trainmaster mcp`, and to a chat."""
    text = text_of(data, 256 << 10)
    answer = _answer([text], len(data) % 3, MARK)
    assert len(answer) <= CHARS_MAX
    head, *marked = answer.split("\n")
    assert head in (UNTRUSTED, "Nothing.")
    assert all(line.startswith((MARK, "There is more: continuation ")) for line in marked)
    shown = {"text": "", "error_message": text, "attempt": 1, "job_id": "j"}
    message = webhook.text_of({**shown, "transition": "failed", "state": "FAILED"}, "")
    _, why = message.split("\n", 1)
    assert not any(markup in why for markup in (*webhook.MARKUP, "\n"))


def _charts() -> Entrance:
    """Show series of a job that a program wrote: lists of numbers under any labels.

    Views compute with differences: each number comes with its neighbours, or, in a series that is
    `alone`, without them.
    """
    site = Site()
    site.world.start_running()
    site.world.wait(3600)  # so that charts have an hour of values
    site.open()

    def read(data: bytes) -> None:
        site.metrics.series.clear()
        for metric, labels, numbers in _series(data):
            begin = site.world.now - timedelta(minutes=len(numbers))
            site.metrics.add(metric, labels.get(Label.TASK_ID, "chief-0"), begin, numbers, "0")
            site.metrics.add(metric, "chief-0", begin, numbers, more=labels)
        progress = read_progress(site.metrics, site.world.job, site.world.now)
        if progress is not None:
            progress.words(site.world.now)
            json.dumps(progress.view(), allow_nan=False)
        path = _PAGES[crc32(data) % len(_PAGES)]
        assert site.get(path).status_code != HTTPStatus.INTERNAL_SERVER_ERROR, path

    return Entrance(read, _SERIES)


def _series(data: bytes) -> Iterator[tuple[Metric, dict[Label, str], list[float]]]:
    """Yield the series of a JSON document. Raises RefusedError where it has none."""
    try:
        document = json.loads(data[: 64 << 10])
    except (ValueError, RecursionError) as error:
        raise RefusedError("no JSON", str(error)) from None
    if not isinstance(document, list):
        raise RefusedError("no list")
    for series in document[:20]:
        if not isinstance(series, dict) or not isinstance(series.get("values"), list):
            continue
        metric = Metric.PROGRESS
        if series.get("metric") in list(Metric):
            metric = Metric(series["metric"])
        labels: dict[Label, str] = {
            label: str(series[label])[:1000]
            for label in Label
            if label is not Label.JOB
            if label in series
        }
        numbers = [_neighbours(value) for value in series["values"][:20]]
        if "alone" in series:
            numbers = [found[:1] for found in numbers]
        if any(numbers):
            yield metric, labels, [*chain.from_iterable(numbers)]


def _neighbours(value: object) -> list[float]:
    """Return a number of Cloud Monitoring, the next larger one, and the one after that."""
    if not isinstance(value, int | float):
        return []
    try:
        number = float(value)
    except OverflowError:
        return []
    after = math.nextafter(number, math.inf)
    return [number, after, math.nextafter(after, math.inf)]


def _event_file() -> Entrance:
    return Entrance(lambda data: parse_records(data, "loss"), [_RECORD], (CorruptRecordError,))


PROGRAMS: Final[Entrances] = {
    "program's output": lambda: Entrance(_shown, _SHOWN),
    "progress and errors": lambda: Entrance(_trained, _TRAINED),
    "agents and chats": lambda: Entrance(
        _told, ["<!channel> @here [a](http://x)", "| data\nThere is more: continuation 1."]
    ),
    "series": _charts,
    "event file": _event_file,
}
