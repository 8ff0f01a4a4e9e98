"""What a trial's program reports, and what its exit says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.agent.metric import Measurement, measurements

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import Vm, gang

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
    ("text", "found"),
    [
        pytest.param(record(TAG, "0.93"), [(0.93, 1000)], id="numbers are text"),
        pytest.param(record(TAG, 0.93, 1000), [(0.93, 1000)], id="or numbers"),
        pytest.param(record(TAG, "0.1", "1") + record(TAG, "0.2", "2"), [(0.1, 1), (0.2, 2)], id="in order"),
        pytest.param(record("loss", "0.1") + record(TAG, "0.2"), [(0.2, 1000)], id="another tag is nobody's question"),
        pytest.param(record(TAG, "0.1") + record(TAG, "0.2")[:40], [(0.1, 1000)], id="a line cut short"),
        pytest.param(record(TAG, "0.1") + record(TAG, "nan") + record(TAG, "-inf"), [(0.1, 1000)], id="finite only"),
        pytest.param(record(TAG, "much"), [], id="no number"),
        pytest.param(record(TAG, None), [], id="nothing"),
        pytest.param('[1]\n7\n"accuracy"\nnull\n{}\n\n', [], id="no records"),
        pytest.param(record(TAG, "5", "7.0"), [(5.0, 7)], id="a step like 7.0"),
        pytest.param(json.dumps({TAG: "5"}), [(5.0, 0)], id="no step"),
        pytest.param(record(TAG, "5", None) + record(TAG, "6", "inf"), [(5.0, 0), (6.0, 0)], id="a step that is none"),
        pytest.param("", [], id="an empty file"),
    ],
)
def test_the_records_of_the_documented_file(text: str, found: list[tuple[float, int]]) -> None:
    assert list(measurements(text, TAG)) == [Measurement(*each) for each in found]


def trial(vm: Vm, **changes: Any) -> None:
    environment = {**gang()["environment"], "CLOUD_ML_TRIAL_ID": "3", "CLOUD_ML_HP_METRIC_TAG": TAG}
    vm.gang(environment=environment, **changes)


def test_the_last_reported_value_is_told_with_the_exit(cloud: Cloud, vm: Vm) -> None:
    trial(vm)
    vm.program(f"{REPORTS}\nreport(0.5, 0.93)")
    cloud.direct(1, 1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["metric"] == {"value": 0.93, "step": 20}


def test_a_failed_life_tells_what_it_reported_too(cloud: Cloud, vm: Vm) -> None:
    trial(vm)
    vm.program(f"{REPORTS}\nreport(0.5)\nsys.exit(9)")
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], body["metric"]) == (9, {"value": 0.5, "step": 10})


def test_a_life_that_reports_nothing_leaves_what_the_one_before_it_reported(cloud: Cloud, vm: Vm) -> None:
    trial(vm)
    vm.program(f"{REPORTS}\nreport(0.5)\nsys.exit(9)")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    vm.program("pass")
    cloud.direct(1, 2)
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["metric"] == {"value": 0.5, "step": 10}

    cloud.direct(2, 1)  # of the whole job, from its beginning
    assert "metric" not in cloud.wait_for_message("replica-exit", (2, 1)).body


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("pass", id="that reports nothing"),
        pytest.param('open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w").write("no record")', id="that writes no record"),
        pytest.param('os.mkdir(os.environ["CLOUD_ML_HP_METRIC_FILE"])', id="that makes a folder of the file"),
    ],
)
def test_a_program_of_a_trial(cloud: Cloud, vm: Vm, source: str) -> None:
    trial(vm)
    vm.program(f"import os\n{source}")
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["exit_status"], "metric" in body) == (0, False)


def test_a_program_of_no_trial_is_asked_for_no_metric(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os; print('ASKED', 'CLOUD_ML_HP_METRIC_FILE' in os.environ)")
    cloud.direct(1, 1)
    vm.boot()
    assert "metric" not in cloud.wait_for_message("replica-exit").body
    assert vm.wait_for_line("ASKED ") == "ASKED False"


def test_a_container_reports_in_a_folder_of_the_vms_where_the_library_writes_by_itself(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    trial(vm, container={"image": IMAGE, "command": []}, python_module="")
    docker.push(f"{REPORTS}\nreport(0.5, 0.93)")
    cloud.direct(2, 3)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["metric"] == {"value": 0.93, "step": 20}
    folder = vm.work / "metric" / "2"
    argv = docker.calls("run")[0]["argv"]
    assert argv[argv.index("--mount") + 1] == f"type=bind,source={folder},target=/tmp/hypertune"
    assert folder.stat().st_mode & 0o777 == 0o777
