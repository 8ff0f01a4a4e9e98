"""The metric that a trial's program reports, and its place in the exit event."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emulators.stack.state import ROOT
from shared.agent.metric.summary_metric import BYTES_MAX, FILES_MAX, select_newest
from shared.agent.metric.trial_metric import parse_measurements
from shared.agent.reporting.cloud_log import LogOrigin
from shared.agent.results import Measurement
from shared.agent.setup.cloud_storage import StoredObject

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import NAME, Vm, agent_identity, vm_config

TAG = "accuracy"
REPORTS = """
import json, os, sys

def report(*values):
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
        for step, value in enumerate(values, start=1):
            record = {"accuracy": str(value), "global_step": str(10 * step), "trial": os.environ["CLOUD_ML_TRIAL_ID"]}
            file.write(json.dumps(record) + "\\n")
"""


def record(tag: str, value: object, step: object = "1000") -> str:
    return json.dumps({tag: value, "checkpoint_path": "", "global_step": step, "timestamp": 1.5, "trial": "3"}) + "\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(record(TAG, "0.93"), [(0.93, 1000)], id="numbers as text"),
        pytest.param(record(TAG, 0.93, 1000), [(0.93, 1000)], id="numbers"),
        pytest.param(record(TAG, "0.1", "1") + record(TAG, "0.2", "2"), [(0.1, 1), (0.2, 2)], id="in order"),
        pytest.param(record("loss", "0.1") + record(TAG, "0.2"), [(0.2, 1000)], id="other tags are skipped"),
        pytest.param(record(TAG, "0.1") + record(TAG, "0.2")[:40], [(0.1, 1000)], id="a line cut short"),
        pytest.param(record(TAG, "0.1") + record(TAG, "nan") + record(TAG, "-inf"), [(0.1, 1000)], id="finite only"),
        pytest.param(record(TAG, "much"), [], id="no number"),
        pytest.param(record(TAG, 10**400) + record(TAG, "5"), [(5.0, 1000)], id="a number that no double holds"),
        pytest.param("[" * 100_000 + "\n" + record(TAG, "5"), [(5.0, 1000)], id="deeper than a parser goes"),
        pytest.param(record(TAG, None), [], id="nothing"),
        pytest.param('[1]\n7\n"accuracy"\nnull\n{}\n\n', [], id="no records"),
        pytest.param(record(TAG, "5", "7.0"), [(5.0, 7)], id="a step like 7.0"),
        pytest.param(json.dumps({TAG: "5"}), [(5.0, 0)], id="no step"),
        pytest.param(record(TAG, "5", None) + record(TAG, "6", "inf"), [(5.0, 0), (6.0, 0)], id="a step that is none"),
        pytest.param(record(TAG, "5", "1e30") + record(TAG, "6", "-1"), [(5.0, 0), (6.0, 0)], id="a step out of range"),
        pytest.param(record(TAG, "5", "5000000000"), [(5.0, 5_000_000_000)], id="examples seen, for a step"),
        pytest.param("", [], id="an empty file"),
    ],
)
def test_measurements_are_parsed_from_the_documented_file(text: str, expected: list[tuple[float, int]]) -> None:
    assert list(parse_measurements(text, TAG)) == [Measurement(*pair) for pair in expected]


def trial(vm: Vm, **changes: Any) -> None:
    environment = {**vm_config()["environment"], "CLOUD_ML_TRIAL_ID": "3", "CLOUD_ML_HP_METRIC_TAG": TAG}
    vm.configure(environment=environment, **changes)


def test_log_of_a_trial_has_the_tuning_job_and_the_trial_number() -> None:
    log = {"name": "projects/p/logs/trainmaster", "task": "master-replica", "region": "us-central1"}
    environment = {"CLOUD_ML_JOB_ID": "digits", "CLOUD_ML_TRIAL_ID": "3", "CLOUD_ML_HP_METRIC_TAG": TAG}
    origin = LogOrigin.of(agent_identity(job_id="digits-trial-3", environment=environment, log=log))
    assert origin is not None
    assert (origin.labels["ml.googleapis.com/job_id"], origin.labels["ml.googleapis.com/trial_id"]) == ("digits", "3")
    assert origin.resources[0] == {
        "type": "ml_job",
        "labels": {"project_id": "p", "job_id": "digits", "task_name": "master-replica-1"},
    }
    other = LogOrigin.of(agent_identity(log=log))
    assert other is not None
    assert "ml.googleapis.com/trial_id" not in other.labels


def test_last_reported_value_is_in_the_exit_event(cloud: Cloud, vm: Vm) -> None:
    trial(vm)
    vm.program(f"{REPORTS}\nreport(0.5, 0.93)")
    cloud.direct(1, 1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["metric"] == {"value": 0.93, "step": 20}


def test_failed_incarnation_reports_its_metric(cloud: Cloud, vm: Vm) -> None:
    trial(vm)
    vm.program(f"{REPORTS}\nreport(0.5)\nsys.exit(9)")
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["metric"]) == (9, {"value": 0.5, "step": 10})


def test_metric_of_the_previous_incarnation_is_kept_within_an_attempt(cloud: Cloud, vm: Vm) -> None:
    trial(vm)
    vm.program(f"{REPORTS}\nreport(0.5)\nsys.exit(9)")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    vm.program("pass")
    cloud.direct(1, 2)
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["metric"] == {"value": 0.5, "step": 10}

    cloud.direct(2, 1)  # a rerun of the whole job
    assert "metric" not in cloud.wait_for_message("replica-exit", (2, 1)).body


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("pass", id="nothing reported"),
        pytest.param('open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w").write("no record")', id="file without a record"),
        pytest.param('os.mkdir(os.environ["CLOUD_ML_HP_METRIC_FILE"])', id="folder instead of the file"),
    ],
)
def test_trial_without_a_record_completes_without_a_metric(cloud: Cloud, vm: Vm, source: str) -> None:
    trial(vm)
    vm.program(f"import os\n{source}")
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], "metric" in body) == (0, False)


@pytest.mark.parametrize(
    ("left_behind", "value"),
    [
        pytest.param('os.mkfifo(os.environ["CLOUD_ML_HP_METRIC_FILE"])', None, id="a pipe"),
        pytest.param('os.makedirs(os.environ["CLOUD_ML_HP_METRIC_FILE"])', None, id="a folder"),
        pytest.param('os.symlink("/dev/zero", os.environ["CLOUD_ML_HP_METRIC_FILE"])', None, id="a file without end"),
        pytest.param(
            'open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w").write("\\n" * 3_000_000)\nreport_more(0.5)',
            0.5,
            id="more than is read",
        ),
    ],
)
def test_exit_is_reported_whatever_the_metric_file_is(
    cloud: Cloud, vm: Vm, left_behind: str, value: float | None
) -> None:
    more = """
def report_more(value):
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a") as file:
        file.write(json.dumps({"accuracy": value, "global_step": 1}))
"""
    trial(vm)
    vm.program(REPORTS + more + left_behind)
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body.get("metric", {}).get("value")) == (0, value)


def test_job_that_is_not_a_trial_gets_no_metric_file(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os; print('HAS FILE', 'CLOUD_ML_HP_METRIC_FILE' in os.environ)")
    cloud.direct(1, 1)
    vm.boot()
    assert "metric" not in cloud.wait_for_message("replica-exit").body
    assert vm.wait_for_line("HAS FILE ") == "HAS FILE False"


def test_container_reports_through_a_mounted_folder(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    trial(vm, container={"image": IMAGE, "command": []}, python_module="")
    docker.push(f"{REPORTS}\nreport(0.5, 0.93)")
    cloud.direct(2, 3)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["metric"] == {"value": 0.93, "step": 20}
    folder = vm.work / "metric" / "2"
    argv = docker.calls("run")[0]["argv"]
    assert argv[argv.index("--mount") + 1] == f"type=bind,source={folder},target=/tmp/hypertune"
    assert folder.stat().st_mode & 0o777 == 0o777


TENSORBOARD = ROOT / ".images" / "tensorflow"
WRITES = """
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
    # As TensorFlow 1 writes a number, and as TensorFlow 2 does.
    old = Summary.Value(tag=tag, simple_value=value) if isinstance(value, float) else None
    new = old or Summary.Value(tag=tag, tensor=make_tensor_proto(value))
    writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=[new])))
writer.close()
"""


def events(folder: Path, *points: tuple[float, int, str, float | list[float] | str]) -> bytes:
    """Write an event file with TensorBoard's own writer; return its content."""
    python = str(TENSORBOARD / "bin" / "python")
    subprocess.run([python, "-c", WRITES, json.dumps([str(folder), *points])], check=True)
    (file,) = folder.iterdir()
    return file.read_bytes()


@pytest.fixture
def primary(cloud: Cloud, vm: Vm) -> Vm:
    """The only replica of a trial, on an image with TensorBoard. Its program writes no metric file."""
    vm.environ["PATH"] = f"{TENSORBOARD / 'bin'}{os.pathsep}{vm.environ['PATH']}"
    trial(vm, rank_base=0, vm_names=[NAME], job_dir="gs://b/d/3")
    vm.program("pass")
    cloud.direct(1, 1)
    return vm


def test_last_summary_event_is_the_metric_if_there_is_no_file(cloud: Cloud, primary: Vm, tmp_path: Path) -> None:
    train = events(tmp_path / "train", (10.0, 1, TAG, 0.2), (30.0, 3, TAG, 0.4), (50.0, 5, "loss", 0.1))
    evaluated = events(
        tmp_path / "eval",
        (20.0, 2, TAG, 0.3), (40.0, 4, TAG, [0.6]), (41.0, 5, TAG, float("nan")), (42.0, 6, TAG, "ü"),
        (43.0, 7, TAG, [1.0, 2.0]), (44.0, 8, TAG, 0.9),
    )  # fmt: skip
    cloud.objects["gs://b/d/3/logs/eval/events.out.tfevents.2.host"] = evaluated[:-5]  # cut short
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
        pytest.param(f"{REPORTS}\nreport(0.5)", {}, id="program that reports through the file"),
    ],
)
def test_summary_events_are_not_read_unless_needed(
    cloud: Cloud, primary: Vm, source: str, changes: dict[str, Any]
) -> None:
    trial(primary, **{"rank_base": 0, "job_dir": "gs://b/d/3", "vm_names": [NAME], **changes})
    primary.program(source)
    primary.boot()
    cloud.wait_for_message("replica-exit")
    assert not [path for path, _ in cloud.requests if path.startswith("/storage/")]


def test_newest_event_files_within_the_limits_are_selected() -> None:
    def stored(position: int, size: int) -> StoredObject:
        return StoredObject(f"gs://b/{position}", f"2026-11-21T03:{position:02}:00.000Z", size)

    many = [stored(position, 1000) for position in range(FILES_MAX + 5)]
    assert select_newest(many) == many[:4:-1]
    large = [stored(1, 1), stored(2, BYTES_MAX), stored(3, 1)]
    assert select_newest(large) == [large[2]], "an older file must not be read if a newer one is skipped"
    assert select_newest([stored(1, BYTES_MAX + 1)]) == []


def test_missing_tensorboard_is_logged(cloud: Cloud, vm: Vm) -> None:
    trial(vm, rank_base=0, vm_names=[NAME], job_dir="gs://b/d")
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
