"""A trial's metric from summary event files, on Cloud Storage that real HTTP calls read.

The formats are tested in `tests/unit/agent/metric/test_event_records.py`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_files import event, event_file
from tests.support.load import is_quick
from tests.support.stack import eventually
from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.setup.setup_errors import Retrier
from trainmaster.gcp.vm_labels import METRIC

from .support.cloud import Cloud
from .support.trial import REPORT_METRIC, TAG, configure_trial
from .support.vm import NAME, Vm

FILE = "gs://b/d/3/eval/events.out.tfevents.1.host"


def events_at(start: float, *values: float) -> bytes:
    return event_file(
        event(start + at, 10 * at, TAG, value) for at, value in enumerate(values, start=1)
    )


def run_until(vm: Vm, flag: Path) -> None:
    """Set a program that writes no metric file, and completes when the flag exists."""
    vm.program(
        f"import os, time\nprint('STARTED')\nwhile not os.path.exists({str(flag)!r}):"
        " time.sleep(0.1)"
    )


@pytest.fixture
def primary(cloud: Cloud, vm: Vm) -> Vm:
    """The only replica of a trial. Its program writes no metric file."""
    configure_trial(vm, rank_base=0, vm_names=[NAME], job_dir="gs://b/d/3")
    vm.program("pass")
    cloud.direct(attempt=1, incarnation=1)
    return vm


def test_range_of_an_object_is_read(cloud: Cloud) -> None:
    cloud.objects["gs://b/o"] = b"0123456789"
    storage = StorageReader(
        GoogleApi(cloud.host, real="", metadata=MetadataServer(cloud.host)),
        Retrier(Console(), lambda pause: None),
    )
    assert [storage.read_range("gs://b/o", *part) for part in [(0, 4), (8, 4), (10, 4)]] == [
        b"0123",
        b"89",
        b"",
    ]


def test_running_trial_writes_the_measurements_of_its_summary_events(
    cloud: Cloud, primary: Vm, tmp_path: Path
) -> None:
    """Events from before the start are those of an earlier job with the same directory."""
    cloud.objects["gs://b/d/3/train/events.out.tfevents.0.host"] = events_at(1e9, 0.99)
    run_until(primary, tmp_path / "flag")
    primary.boot()
    primary.wait_for_line("STARTED")
    cloud.objects[FILE] = events_at(time.time(), 0.25, 0.5)
    eventually(lambda: METRIC in cloud.guest_attributes, within_s=40)
    written = json.loads(cloud.guest_attributes[METRIC])
    assert written == {"attempt": 1, "measurements": [[10, 0.25], [20, 0.5]]}

    cloud.objects[FILE] = events_at(time.time(), 0.25, 0.5, 0.75)
    (tmp_path / "flag").touch()
    metric = cloud.wait_for_message("replica-exit").body["metric"]
    assert (metric["value"], metric["step"]) == (0.75, 30)
    assert metric["earlier"] == [{"value": 0.25, "step": 10}, {"value": 0.5, "step": 20}]


def test_program_that_finds_its_work_done_has_the_earlier_events(cloud: Cloud, primary: Vm) -> None:
    cloud.objects[FILE] = events_at(1e9, 0.25, 0.5)
    cloud.objects["gs://b/d/30/events.out.tfevents.3.host"] = b"another trial's"
    primary.boot()
    metric = cloud.wait_for_message("replica-exit").body["metric"]
    assert metric == {"value": 0.5, "step": 20, "earlier": [{"value": 0.25, "step": 10}]}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        pytest.param("raise SystemExit(9)", {}, id="failed incarnation"),
        pytest.param("pass", {"rank_base": 1}, id="replica that is not the primary"),
        pytest.param("pass", {"job_dir": None}, id="trial without a job directory"),
        pytest.param(
            f"{REPORT_METRIC}\nreport(0.5)", {}, id="program that reports through the file"
        ),
    ],
)
def test_summary_events_are_not_read_unless_needed(
    cloud: Cloud, primary: Vm, source: str, changes: dict[str, Any]
) -> None:
    configure_trial(
        primary, **{"rank_base": 0, "job_dir": "gs://b/d/3", "vm_names": [NAME], **changes}
    )
    primary.program(source)
    primary.boot()
    cloud.wait_for_message("replica-exit")
    listed = "/storage/v1/b/b/o"  # whether the program has written anything to its job directory
    reads = [path for path, _ in cloud.requests if path.startswith("/storage/v1/b/b/")]
    assert [path for path in reads if path != listed] == []


def test_corrupt_event_file_does_not_fail_the_trial(cloud: Cloud, primary: Vm) -> None:
    cloud.objects[FILE] = b"no events at all, but more bytes than a header has"
    primary.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert body["exit_status"] == 0
    assert "metric" not in body
    primary.wait_for_line(
        f"[trainmaster] Summary events in {FILE} are not read any further: the checksum"
    )


def test_shutdown_does_not_wait_for_summary_events(cloud: Cloud, primary: Vm) -> None:
    cloud.objects[FILE] = events_at(1e9, 0.5)
    cloud.storage_stalls = True
    primary.boot()
    primary.wait_for_line("[trainmaster] Reading accuracy")
    started = time.monotonic()
    primary.terminate()
    assert primary.wait() == 0
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_stopping"
    assert is_quick(time.monotonic() - started, 30.0)
