"""A trial's metric from TensorFlow's summary event files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emulators.stack.state import ROOT
from shared.agent.metric.summary_metric import BYTES_MAX, FILES_MAX, select_newest
from shared.agent.setup.cloud_storage import StoredObject

from .support.cloud import Cloud
from .support.trial import REPORT_METRIC, TAG, configure_trial
from .support.vm import NAME, Vm

TENSORBOARD = ROOT / ".images" / "tensorflow"
NO_TENSORBOARD = ROOT / ".images" / "scikit-learn"
WRITE_EVENTS = """
import json, sys
import types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

folder, *points = json.loads(sys.argv[1])
writer = EventFileWriter(folder)
for at, step, tag, value in points:
    # TensorFlow 1 writes a number, TensorFlow 2 a tensor.
    old = Summary.Value(tag=tag, simple_value=value) if isinstance(value, float) else None
    new = old or Summary.Value(tag=tag, tensor=make_tensor_proto(value))
    writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=[new])))
writer.close()
"""


def event_file(folder: Path, *points: tuple[float, int, str, float | list[float] | str]) -> bytes:
    """Write an event file with TensorBoard's own writer; return its content."""
    python = str(TENSORBOARD / "bin" / "python")
    subprocess.run([python, "-c", WRITE_EVENTS, json.dumps([str(folder), *points])], check=True)
    (file,) = folder.iterdir()
    return file.read_bytes()


@pytest.fixture
def primary(cloud: Cloud, vm: Vm) -> Vm:
    """The only replica of a trial, on an image with TensorBoard. Its program writes no metric file."""
    vm.environ["PATH"] = f"{TENSORBOARD / 'bin'}{os.pathsep}{vm.environ['PATH']}"
    configure_trial(vm, rank_base=0, vm_names=[NAME], job_dir="gs://b/d/3")
    vm.program("pass")
    cloud.direct(1, 1)
    return vm


def test_last_summary_event_is_the_metric_if_there_is_no_file(cloud: Cloud, primary: Vm, tmp_path: Path) -> None:
    train = event_file(tmp_path / "train", (10.0, 1, TAG, 0.2), (30.0, 3, TAG, 0.4), (50.0, 5, "loss", 0.1))
    evaluated = event_file(
        tmp_path / "eval",
        (20.0, 2, TAG, 0.3), (40.0, 4, TAG, [0.6]), (41.0, 5, TAG, float("nan")), (42.0, 6, TAG, "ü"),
        (43.0, 7, TAG, [1.0, 2.0]), (44.0, 8, TAG, 0.9),
    )  # fmt: skip
    cloud.objects["gs://b/d/3/logs/eval/events.out.tfevents.2.host"] = evaluated[:-5]  # a truncated record
    cloud.objects["gs://b/d/3/logs/train/events.out.tfevents.1.host"] = train
    cloud.objects["gs://b/d/3/model/saved_model.pb"] = b"no events"
    cloud.objects["gs://b/d/30/events.out.tfevents.3.host"] = b"another trial's"
    primary.boot()
    metric = cloud.wait_for_message("replica-exit").body["metric"]
    assert (round(metric["value"], 6), metric["step"]) == (0.6, 4)
    primary.wait_for_line("[trainmaster] Reading accuracy from 2 files of summary events.")
    assert not (primary.work / "summaries").exists()


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        pytest.param("raise SystemExit(9)", {}, id="failed incarnation"),
        pytest.param("pass", {"rank_base": 1}, id="replica that is not the primary"),
        pytest.param("pass", {"job_dir": None}, id="trial without a job directory"),
        pytest.param(f"{REPORT_METRIC}\nreport(0.5)", {}, id="program that reports through the file"),
    ],
)
def test_summary_events_are_not_read_unless_needed(
    cloud: Cloud, primary: Vm, source: str, changes: dict[str, Any]
) -> None:
    configure_trial(primary, **{"rank_base": 0, "job_dir": "gs://b/d/3", "vm_names": [NAME], **changes})
    primary.program(source)
    primary.boot()
    cloud.wait_for_message("replica-exit")
    assert not [path for path, _ in cloud.requests if path.startswith("/storage/v1/b/b/")]


def test_newest_event_files_within_the_limits_are_selected() -> None:
    def stored(position: int, size: int) -> StoredObject:
        return StoredObject(f"gs://b/{position}", f"2026-11-21T03:{position:02}:00.000Z", size)

    many = [stored(position, 1000) for position in range(FILES_MAX + 5)]
    assert select_newest(many) == many[:4:-1]
    large = [stored(1, 1), stored(2, BYTES_MAX), stored(3, 1)]
    assert select_newest(large) == [large[2]], "an older file must not be read if a newer one is skipped"
    assert select_newest([stored(1, BYTES_MAX + 1)]) == []


def test_missing_tensorboard_is_logged(cloud: Cloud, vm: Vm) -> None:
    vm.environ["PATH"] = f"{NO_TENSORBOARD / 'bin'}{os.pathsep}{vm.environ['PATH']}"
    configure_trial(vm, rank_base=0, vm_names=[NAME], job_dir="gs://b/d")
    vm.program("pass")
    cloud.objects["gs://b/d/events.out.tfevents.1.host"] = b""
    cloud.direct(1, 1)
    vm.boot()
    assert "metric" not in cloud.wait_for_message("replica-exit").body
    vm.wait_for_line("[trainmaster] Summary events cannot be read: this VM's Python has no TensorBoard.")


def test_malformed_event_file_does_not_fail_the_trial(cloud: Cloud, primary: Vm) -> None:
    cloud.objects["gs://b/d/3/events.out.tfevents.1.host"] = b"no events at all"
    primary.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], "metric" in body) == (0, False)


def test_shutdown_does_not_wait_for_summary_events(cloud: Cloud, primary: Vm, tmp_path: Path) -> None:
    """The reader hangs, because its Python imports a fake TensorBoard that blocks."""
    package = tmp_path / "stuck" / "tensorboard"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import signal; signal.pause()")
    primary.environ["PYTHONPATH"] += f"{os.pathsep}{package.parent}"
    cloud.objects["gs://b/d/3/events.out.tfevents.1.host"] = b""
    primary.boot()
    primary.wait_for_line("[trainmaster] Reading accuracy")
    primary.terminate()
    assert primary.wait() == 0
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_stopping"
