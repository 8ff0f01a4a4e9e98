"""The metric that a trial's program reports, and its place in the exit event."""

from __future__ import annotations

import json

import pytest

from trainmaster.agent.metric.trial_metric import parse_measurements
from trainmaster.agent.model.results import Measurement
from trainmaster.agent.reporting.log_origin import LogOrigin

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.trial import REPORT_METRIC, TAG, configure_trial
from .support.vm import Vm, agent_identity


def record(tag: str, value: object, step: object = "1000") -> str:
    return (
        json.dumps(
            {tag: value, "checkpoint_path": "", "global_step": step, "timestamp": 1.5, "trial": "3"}
        )
        + "\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(record(TAG, "0.93"), [(0.93, 1000)], id="numbers as text"),
        pytest.param(record(TAG, value=0.93, step=1000), [(0.93, 1000)], id="numbers"),
        pytest.param(
            record(TAG, "0.1", "1") + record(TAG, "0.2", "2"), [(0.1, 1), (0.2, 2)], id="in order"
        ),
        pytest.param(
            record("loss", "0.1") + record(TAG, "0.2"), [(0.2, 1000)], id="other tags are skipped"
        ),
        pytest.param(
            record(TAG, "0.1") + record(TAG, "0.2")[:40], [(0.1, 1000)], id="truncated line"
        ),
        pytest.param(
            record(TAG, "0.1") + record(TAG, "nan") + record(TAG, "-inf"),
            [(0.1, 1000)],
            id="finite only",
        ),
        pytest.param(record(TAG, "much"), [], id="text instead of a number"),
        pytest.param(
            record(TAG, 10**400) + record(TAG, "5"), [(5.0, 1000)], id="number out of range"
        ),
        pytest.param(
            "[" * 100_000 + "\n" + record(TAG, "5"), [(5.0, 1000)], id="nested too deeply"
        ),
        pytest.param(record(TAG, value=None), [], id="null"),
        pytest.param('[1]\n7\n"accuracy"\nnull\n{}\n\n', [], id="lines that are no records"),
        pytest.param(record(TAG, "5", "7.0"), [(5.0, 7)], id="step like 7.0"),
        pytest.param(json.dumps({TAG: "5"}), [(5.0, 0)], id="no step"),
        pytest.param(
            record(TAG, "5", step=None) + record(TAG, "6", "inf"),
            [(5.0, 0), (6.0, 0)],
            id="invalid step",
        ),
        pytest.param(
            record(TAG, "5", "1e30") + record(TAG, "6", "-1"),
            [(5.0, 0), (6.0, 0)],
            id="step out of range",
        ),
        pytest.param(record(TAG, "5", "5000000000"), [(5.0, 5_000_000_000)], id="large step"),
        pytest.param("", [], id="empty file"),
    ],
)
def test_measurements_are_parsed_from_the_documented_file(
    text: str, expected: list[tuple[float, int]]
) -> None:
    assert list(parse_measurements(text, TAG)) == [Measurement(*pair) for pair in expected]


def test_log_of_a_trial_has_the_tuning_job_and_the_trial_number() -> None:
    log = {"name": "projects/p/logs/trainmaster", "task": "master-replica", "region": "us-central1"}
    environment = {
        "CLOUD_ML_JOB_ID": "digits",
        "CLOUD_ML_TRIAL_ID": "3",
        "CLOUD_ML_HP_METRIC_TAG": TAG,
    }
    origin = LogOrigin.of(agent_identity(job_id="digits-trial-3", environment=environment, log=log))
    assert origin is not None
    assert (
        origin.labels["ml.googleapis.com/job_id"],
        origin.labels["ml.googleapis.com/trial_id"],
    ) == ("digits", "3")
    assert origin.resources[0] == {
        "type": "ml_job",
        "labels": {"project_id": "p", "job_id": "digits", "task_name": "master-replica-1"},
    }
    other = LogOrigin.of(agent_identity(log=log))
    assert other is not None
    assert "ml.googleapis.com/trial_id" not in other.labels


def test_reported_values_are_in_the_exit_event(cloud: Cloud, vm: Vm) -> None:
    configure_trial(vm)
    vm.program(f"{REPORT_METRIC}\nreport(0.5, 0.93)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    metric = cloud.wait_for_message("replica-exit").body["metric"]
    assert metric == {"value": 0.93, "step": 20, "earlier": [{"value": 0.5, "step": 10}]}


def test_exit_event_has_the_latest_fifty_values(cloud: Cloud, vm: Vm) -> None:
    configure_trial(vm)
    vm.program(f"{REPORT_METRIC}\nreport(*(step / 100 for step in range(1, 81)))")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    metric = cloud.wait_for_message("replica-exit").body["metric"]
    steps = [point["step"] for point in metric["earlier"]]
    assert (metric["step"], steps) == (800, list(range(310, 800, 10)))


def test_failed_incarnation_reports_its_metric(cloud: Cloud, vm: Vm) -> None:
    configure_trial(vm)
    vm.program(f"{REPORT_METRIC}\nreport(0.5)\nsys.exit(9)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["metric"]) == (9, {"value": 0.5, "step": 10})


def test_metric_of_the_previous_incarnation_is_kept_within_an_attempt(cloud: Cloud, vm: Vm) -> None:
    configure_trial(vm)
    vm.program(f"{REPORT_METRIC}\nreport(0.5)\nsys.exit(9)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    vm.program("pass")
    cloud.direct(attempt=1, incarnation=2)
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["metric"] == {
        "value": 0.5,
        "step": 10,
    }

    cloud.direct(attempt=2, incarnation=1)  # a rerun of the whole job
    assert "metric" not in cloud.wait_for_message("replica-exit", (2, 1)).body


def test_exit_is_reported_whatever_the_metric_file_is(cloud: Cloud, vm: Vm) -> None:
    """Each attempt has a file of its own, and leaves something else behind."""
    more = """
path = os.environ["CLOUD_ML_HP_METRIC_FILE"]

def report_more(value):
    with open(path, "a") as file:
        file.write(json.dumps({"accuracy": value, "global_step": 1}))
"""
    configure_trial(vm)
    vm.boot()
    programs = {
        "pass": None,
        'open(path, "w").write("no record")': None,
        "os.mkdir(path)": None,
        "os.mkfifo(path)": None,
        'os.symlink("/dev/zero", path)': None,
        'open(path, "w").write("\\n" * 3_000_000)\nreport_more(0.5)': 0.5,  # larger than the limit
    }
    for attempt, (left_behind, value) in enumerate(programs.items(), start=1):
        vm.program(REPORT_METRIC + more + left_behind)
        cloud.direct(attempt=attempt, incarnation=1)
        body = cloud.wait_for_message("replica-exit", (attempt, 1)).body
        assert (body["exit_status"], body.get("metric", {}).get("value")) == (0, value), left_behind


def test_job_that_is_not_a_trial_gets_no_metric_file(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os; print('HAS FILE', 'CLOUD_ML_HP_METRIC_FILE' in os.environ)")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert "metric" not in cloud.wait_for_message("replica-exit").body
    assert vm.wait_for_line("HAS FILE ") == "HAS FILE False"


def test_container_reports_through_a_mounted_folder(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    configure_trial(vm, container={"image": IMAGE, "command": []}, python_module="")
    docker.push(f"{REPORT_METRIC}\nreport(0.5, 0.93)")
    cloud.direct(attempt=2, incarnation=3)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["metric"]["value"] == 0.93
    folder = vm.work / "metric" / "2"
    argv = docker.calls("run")[0]["argv"]
    assert f"type=bind,source={folder},target=/tmp/hypertune" in argv
    assert folder.stat().st_mode & 0o777 == 0o777
