"""The agent of a trial writes what its program has reported to a guest attribute, while the program
runs.

The exit event has the latest measurements again, 50 at most. What neither a write nor the exit
event contains is missing. Jobs may use a VM one after the other: the tenure is the job's number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import eventually
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.metric.metric_report import MEASUREMENTS_MAX, MetricReport
from trainmaster.agent.metric.trial_metric import FILE_NAME, TrialMetric
from trainmaster.agent.model.vm_config import IncarnationKey, SliceHost
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.gcp.vm_labels import METRIC

from .support.cloud import Cloud
from .support.trial import REPORT_METRIC, TAG, configure_trial
from .support.vm import NAME, Vm, agent_identity

FIRST = IncarnationKey(1, 1)


def a_report(
    cloud: Cloud, work: Path, key: IncarnationKey | None = FIRST, tenure: int = 1
) -> MetricReport:
    cloud.set("instance/id", "4711")
    identity = agent_identity(environment={"CLOUD_ML_HP_METRIC_TAG": TAG})
    metric = TrialMetric(identity, work, summary_metric=None)
    return MetricReport(metric, lambda: key, MetadataServer(cloud.host), Console(), tenure)


def write_file(work: Path, *values: float, attempt: int = 1) -> None:
    folder = work / "metric" / str(attempt)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({TAG: str(value), "global_step": str(step)})
        for step, value in enumerate(values, start=1)
    ]
    (folder / FILE_NAME).write_text("\n".join(lines))


def read_metric(cloud: Cloud) -> Any:
    return json.loads(cloud.guest_attributes[METRIC])


def test_measurements_are_written_with_their_attempt(cloud: Cloud, tmp_path: Path) -> None:
    write_file(tmp_path, 0.25, 0.5)
    a_report(cloud, tmp_path).write_new()
    assert read_metric(cloud) == {"attempt": 1, "measurements": [[1, 0.25], [2, 0.5]]}


def test_measurements_on_a_vm_of_an_earlier_trial_have_their_tenure(
    cloud: Cloud, tmp_path: Path
) -> None:
    write_file(tmp_path, 0.25)
    a_report(cloud, tmp_path, tenure=2).write_new()
    assert read_metric(cloud) == {"attempt": 1, "tenure": 2, "measurements": [[1, 0.25]]}


def test_nothing_new_is_not_written_again(cloud: Cloud, tmp_path: Path) -> None:
    report = a_report(cloud, tmp_path)
    report.write_new()
    assert cloud.guest_attribute_writes == 0, "nothing is reported yet"
    write_file(tmp_path, 0.25)
    report.write_new()
    report.write_new()
    assert cloud.guest_attribute_writes == 1
    write_file(tmp_path, 0.25, 0.5)
    report.write_new()
    assert cloud.guest_attribute_writes == 2


def test_latest_measurements_are_written_if_there_are_many(cloud: Cloud, tmp_path: Path) -> None:
    write_file(tmp_path, *(float(step) for step in range(1, 101)))
    a_report(cloud, tmp_path).write_new()
    measurements = read_metric(cloud)["measurements"]
    assert (len(measurements), measurements[-1]) == (MEASUREMENTS_MAX, [100, 100.0])


def test_measurements_of_another_attempt_are_not_written(cloud: Cloud, tmp_path: Path) -> None:
    write_file(tmp_path, 0.25, attempt=1)
    a_report(cloud, tmp_path, IncarnationKey(2, 1)).write_new()
    a_report(cloud, tmp_path, key=None).write_new()
    assert cloud.guest_attribute_writes == 0


def test_write_that_failed_is_repeated(cloud: Cloud, tmp_path: Path) -> None:
    write_file(tmp_path, 0.25)
    report = a_report(cloud, tmp_path)
    cloud.guest_attributes_status = 503
    report.write_new()
    assert METRIC not in cloud.guest_attributes
    cloud.guest_attributes_status = 200
    report.write_new()
    assert read_metric(cloud)["measurements"] == [[1, 0.25]]


def test_measurements_that_never_arrive_are_counted_at_the_end(
    cloud: Cloud, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = a_report(cloud, tmp_path)
    cloud.guest_attributes_status = 503
    write_file(tmp_path, *map(float, range(60)))
    report.write_new()
    report.count_missing()
    missing = "Missing measurements of the trial: 10, because they could not be written: "
    assert f"{missing}HTTP 503" in capfd.readouterr().out
    report.count_missing()
    assert "missing" not in capfd.readouterr().out, "they are counted once"


def test_measurements_that_are_no_finite_numbers_are_counted_once(
    cloud: Cloud, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = a_report(cloud, tmp_path)
    write_file(tmp_path, 0.5, float("nan"), float("inf"))
    report.write_new()
    report.count_missing()
    why = "because they are no finite numbers"
    assert f"Missing measurements of the trial: 2, {why}" in capfd.readouterr().out
    report.count_missing()
    assert "missing" not in capfd.readouterr().out
    write_file(tmp_path, 0.5, float("nan"), float("inf"), 0.25, float("nan"))
    report.count_missing()
    assert f"Missing measurements of the trial: 1, {why}" in capfd.readouterr().out


def test_more_measurements_than_one_report_has_are_counted(
    cloud: Cloud, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = a_report(cloud, tmp_path)
    write_file(tmp_path, *map(float, range(80)))
    report.write_new()
    report.count_missing()
    assert "Missing measurements of the trial: 30, because at most 50 are sent" in (
        capfd.readouterr().out
    )


def test_no_measurement_is_missing_if_each_is_written_or_part_of_the_exit(
    cloud: Cloud, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = a_report(cloud, tmp_path)
    for count in (50, 90):
        write_file(tmp_path, *map(float, range(count)))
        report.write_new()
    cloud.guest_attributes_status = 503
    write_file(tmp_path, *map(float, range(100)))
    report.count_missing()
    assert "missing" not in capfd.readouterr().out


def test_running_trial_writes_its_measurements(cloud: Cloud, vm: Vm) -> None:
    configure_trial(vm, rank_base=0, vm_names=[NAME])
    # Each measurement is ten steps after the one before.
    vm.program(f"{REPORT_METRIC}\nreport(0.5, 0.93)\nimport time; time.sleep(60)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    eventually(lambda: METRIC in cloud.guest_attributes, within_s=40)
    assert read_metric(cloud) == {"attempt": 1, "measurements": [[10, 0.5], [20, 0.93]]}
    vm.terminate()
    assert vm.wait() == 0


def test_only_the_first_host_of_the_first_slice_reports(tmp_path: Path) -> None:
    def is_reported(*, number: int, rank_base: int) -> bool:
        environment = {"CLOUD_ML_HP_METRIC_TAG": TAG}
        identity = agent_identity(
            SliceHost(number, ("a", "b")),
            hosts=2,
            rank_base=rank_base,
            vm_names=[NAME],
            environment=environment,
        )
        return TrialMetric(identity, tmp_path, summary_metric=None).is_reported

    assert [
        is_reported(number=0, rank_base=0),
        is_reported(number=1, rank_base=0),
        is_reported(number=0, rank_base=2),
    ] == [True, False, False]


def test_trial_on_a_slice_writes_its_measurements(cloud: Cloud, vm: Vm) -> None:
    cloud.set("instance/name", "t1v-n-0c6f6a3e-w-0")
    cloud.set(
        "instance/attributes/tpu-env", f"NODE_ID: '{NAME}'\nUID: '650208'\nZONE: 'us-central1-a'\n"
    )
    cloud.set("instance/attributes/agent-worker-number", "0")
    cloud.set(
        "instance/attributes/worker-network-endpoints",
        "unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2",
    )
    configure_trial(vm, rank_base=0, vm_names=[NAME], hosts=2)
    # Each measurement is ten steps after the one before.
    vm.program(f"{REPORT_METRIC}\nreport(0.5, 0.93)\nimport time; time.sleep(60)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    eventually(lambda: METRIC in cloud.guest_attributes, within_s=40)
    assert read_metric(cloud) == {"attempt": 1, "measurements": [[10, 0.5], [20, 0.93]]}
    vm.terminate()
    assert vm.wait() == 0
