"""Views of jobs: ML units against the service's published figures, etags, labels, and the schema
check itself.
"""

from __future__ import annotations

import pytest

from tests.integration.api.discovery import faults
from tests.support.jobs import START, a_job, a_plan, at
from trainmaster.core.model.job import JobState, Label
from trainmaster.core.model.money import read_money
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup, Tpu
from trainmaster.jobspec.catalog.machine_types import LEGACY_MACHINES
from trainmaster.presentation.job_view import etag, job_view, service_view
from trainmaster.presentation.ml_units import consumed_ml_units, ml_units_per_hour, usage


def group(machine_type: str, count: int = 1, accelerator: Accelerator | None = None) -> TaskGroup:
    return TaskGroup(TaskType.WORKER, count, machine_type, accelerator)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("standard", 0.3878),
        ("large_model", 0.9665),
        ("complex_model_s", 0.5788),
        ("complex_model_m", 1.1576),
        ("complex_model_l", 2.3151),
        ("standard_gpu", 1.6939),
        ("complex_model_m_gpu", 5.2245),
        ("standard_p100", 3.7551),
        ("standard_v100", 5.8367),
    ],
)
def test_ml_units_per_hour_equal_published_figures(name: str, published: float) -> None:
    machine = LEGACY_MACHINES[name]
    gpu = (
        Accelerator(machine.gpu.type.lower().replace("_", "-"), machine.gpu.count)
        if machine.gpu
        else None
    )
    assert ml_units_per_hour(group(machine.machine_type, accelerator=gpu)) == pytest.approx(
        published, abs=6e-5
    )


def test_ml_units_of_premium_1_add_up_to_published_figure() -> None:
    """PREMIUM_1: a master and 19 workers of complex_model_m, 11 parameter servers of
    large_model.
    """
    groups = (group("n1-highcpu-16", 20), group("n1-highmem-8", 11))
    assert sum(ml_units_per_hour(group) or 0 for group in groups) == pytest.approx(
        33.7829, abs=6e-5
    )


@pytest.mark.parametrize(
    "other",
    [
        group("a2-highgpu-1g"),
        group("n1-standard-8", accelerator=Accelerator("nvidia-l4", 1)),
        TaskGroup(
            TaskType.WORKER, 1, machine_type="", tpu=Tpu("v5litepod-4", "v2-alpha-tpuv5-lite")
        ),
    ],
)
def test_machine_not_of_the_service_makes_ml_units_of_job_unknown(other: TaskGroup) -> None:
    assert ml_units_per_hour(other) is None
    plan = a_plan(groups=(group("n1-standard-4"), other))
    assert (
        consumed_ml_units(a_job(JobState.SUCCEEDED, plan, started_at=at(0), ended_at=at(60)))
        is None
    )


def test_ml_units_count_from_running_to_the_end() -> None:
    ended = a_job(
        JobState.SUCCEEDED, a_plan(workers=2), started_at=at(100), ended_at=at(100 + 1800)
    )
    assert consumed_ml_units(ended) == 0.58
    assert consumed_ml_units(a_job(JobState.RUNNING)) is None
    assert consumed_ml_units(a_job(JobState.CANCELLED, ended_at=at(9))) is None


def test_usage_grows_while_job_runs_and_is_constant_after_its_end() -> None:
    price = read_money("0.49 USD")
    running = a_job(JobState.RUNNING, a_plan(workers=2), started_at=at(100))
    used = [usage(running, at(100 + seconds), price).words for seconds in (0, 1800, 3600)]
    assert used == [
        "0.00 machine-hours, 0.00 ML units, 0.00 USD",
        "1.50 machine-hours, 0.58 ML units, 0.28 USD",
        "3.00 machine-hours, 1.16 ML units, 0.57 USD",
    ]
    ended = a_job(
        JobState.SUCCEEDED, a_plan(workers=2), started_at=at(100), ended_at=at(100 + 1800)
    )
    assert usage(ended, at(9999)).ml_units == consumed_ml_units(ended) == 0.58
    assert usage(a_job(JobState.PREPARING), at(9999)).machine_hours == 0
    assert usage(running, at(0)).machine_hours == 0, "a clock behind the function's"


def test_machines_without_ml_units_have_hours_and_slices_count_their_hosts() -> None:
    slices = TaskGroup(
        TaskType.WORKER, 2, machine_type="", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
    )
    running = a_job(JobState.RUNNING, a_plan(groups=(slices,)), started_at=at(0))
    used = usage(running, at(3600), read_money("0.49 USD"))
    assert (used.machine_hours, used.ml_units, used.cost) == (8.0, None, None)
    assert used.words == "8.00 machine-hours"


def test_job_view_has_usage_under_trainmaster() -> None:
    running = a_job(JobState.RUNNING, a_plan(workers=2), started_at=at(0))
    shown = job_view(running, usage=usage(running, at(3600), read_money("0.5 EUR")))["trainmaster"][
        "usage"
    ]
    assert shown == {
        "machineHours": 3.0,
        "mlUnits": 1.16,
        "cost": {"amount": 0.58, "currency": "EUR"},
    }
    assert job_view(running, usage=usage(running, at(3600)))["trainmaster"]["usage"] == {
        "machineHours": 3.0,
        "mlUnits": 1.16,
    }
    assert "usage" not in job_view(running)["trainmaster"]


def test_etag_differs_by_job_and_version_of_labels() -> None:
    job = a_job(JobState.RUNNING)
    assert etag(job) == etag(a_job(JobState.FAILED, ended_at=at(1), version=9)), (
        "what runs does not move it"
    )
    assert len({etag(job), etag(a_job(labels_version=2)), etag(a_job(job_id="digits_2"))}) == 3


def test_schema_check_reports_wrong_values() -> None:
    """Tests that check responses against the schema can fail."""
    right = service_view(
        a_job(JobState.FAILED, created_at=START, ended_at=at(1), error_message="x")
    )
    assert (
        faults("ml", "GoogleCloudMlV1__Job", {**right, "labels": {"a": "b"}}, {"trainingInput"})
        == []
    )
    for name, value in [
        ("jobPosition", 0),
        ("state", "DONE"),
        ("createTime", "2026-11-21 03:00:00"),
        ("etag", "no base64"),
        ("labels", {"a": 1}),
        ("trainingOutput", {"consumedMLUnits": "1"}),
        ("trainingOutput", []),
        ("trainmaster", {}),
    ]:
        assert faults("ml", "GoogleCloudMlV1__Job", {**right, name: value}, {"trainingInput"}), name


def test_labels_are_shown_as_mapping() -> None:
    assert service_view(a_job(labels=(Label("a", "b"),)))["labels"] == {"a": "b"}
    assert service_view(a_job(), position=3)["jobPosition"] == "3"
