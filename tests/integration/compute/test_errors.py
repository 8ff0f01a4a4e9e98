"""Errors of Compute Engine's client, and the limits of what is sent to it.

No emulator is needed.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from tests.contract.fleets import a_create
from tests.support.jobs import a_job, a_plan
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.gcp.compute_fleet import operations as compute_operations
from trainmaster.gcp.compute_fleet.errors import FLEET_CHANGE, problem_of
from trainmaster.gcp.compute_fleet.hardware import scheduling
from trainmaster.gcp.compute_fleet.placement import Placements, policy_name
from trainmaster.gcp.compute_fleet.properties import resource
from trainmaster.gcp.compute_fleet.purchase_requests import PurchaseRequest
from trainmaster.gcp.vm_defaults import VmDefaults

DAY_S = 24 * 3600


def error(*details: object) -> exceptions.Forbidden:
    return exceptions.Forbidden("not allowed", errors=details)


@pytest.mark.parametrize(
    ("details", "code", "message"),
    [
        ((), "403", "not allowed"),
        (("no mapping",), "403", "not allowed"),
        (({"message": "without a reason"},), "403", "not allowed"),
        (({"reason": "quotaExceeded", "message": "Quota CPUS"},), "quotaExceeded", "Quota CPUS"),
        (("no mapping", {"reason": "quotaExceeded"}), "quotaExceeded", ""),
    ],
)
def test_problem_has_googles_reason_or_else_the_http_status(
    details: tuple[object, ...], code: str, message: str
) -> None:
    problem = problem_of(error(*details))
    assert (problem.code, problem.message) == (code, message)


def test_changes_that_a_rate_limit_refuses_are_sent_again_after_1_2_4_and_8_seconds() -> None:
    assert "initial=1.0, maximum=8.0, multiplier=2.0, timeout=30.0" in str(FLEET_CHANGE["retry"])


@pytest.mark.parametrize(
    ("days", "seconds"), [(119, 119 * DAY_S + 3600), (120, 120 * DAY_S), (200, 120 * DAY_S)]
)
def test_vm_deletes_itself_within_the_120_days_that_compute_allows(days: int, seconds: int) -> None:
    plan = a_plan(max_running_s=days * DAY_S, max_wait_s=0)
    request = scheduling(plan, a_create(a_job(plan=plan)), PurchaseRequest("STANDARD"))
    assert request.max_run_duration.seconds == seconds


@pytest.mark.parametrize(("partial", "min_count"), [(False, 3), (True, 1)])
def test_insert_creates_all_vms_or_as_many_as_possible(partial: bool, min_count: int) -> None:
    job = a_job(plan=a_plan(workers=3))
    replica_ids = tuple(ReplicaId(TaskType.WORKER, index) for index in range(3))
    names = tuple(vm_name(job.job_id, replica_id) for replica_id in replica_ids)
    group = job.plan.group(TaskType.WORKER)
    create = a_create(job, group=group, replica_ids=replica_ids, names=names, partial=partial)
    request = resource(
        job,
        create,
        VmDefaults(
            "my-project", service_account="", network="global/networks/default", subnetwork=""
        ),
        {},
    )
    assert (request.count, request.min_count) == (3, min_count)


@pytest.mark.parametrize(
    ("wait_s", "answers", "is_done", "waits"),
    [
        (5.0, ["RUNNING", "DONE"], True, [5.0, 4.5]),
        (1.0, ["RUNNING", "RUNNING"], False, [1.0, 0.5]),
        (0.0, [], False, []),
        (0.25, ["RUNNING"], False, [0.25]),
    ],
    ids=["done", "not done", "no time", "little time"],
)
def test_operation_is_followed_until_the_deadline(
    wait_s: float,
    answers: list[str],
    is_done: bool,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    waited: list[float] = []
    left = list(answers)

    def wait(*, timeout: float, **_: object) -> compute_v1.Operation:
        """Take half a second, as a wait of Compute Engine that returns early."""
        nonlocal now_s
        waited.append(timeout)
        now_s += 0.5
        return compute_v1.Operation(name="o", status=left.pop(0))

    monkeypatch.setattr(compute_operations, "time", SimpleNamespace(monotonic=lambda: now_s))
    operations = compute_operations.Operations("p", "http://127.0.0.1:9")
    monkeypatch.setattr(operations._zones, "wait", wait)
    followed = operations.in_zone(
        "us-central1-a", compute_v1.Operation(name="o", status="RUNNING"), wait_s
    )
    assert (followed is not None, waited) == (is_done, waits)
    operations.close()


def job_on_close_vms(job_id: str = "digits_1") -> Job:
    plan = a_plan(workers=2)
    groups = tuple(replace(group, machine_type="a2-highgpu-8g") for group in plan.groups)
    return a_job(plan=replace(plan, groups=groups), job_id=job_id)


def name_of(job: Job) -> str:
    name = policy_name(job, job.plan.group(TaskType.WORKER), "us-central1-a")
    assert name is not None
    return name


def test_name_of_a_placement_policy_has_at_most_63_characters() -> None:
    assert name_of(job_on_close_vms()).startswith("tm-digits-1-")
    long = name_of(job_on_close_vms("a" * 128))
    assert len(long) == 63
    assert long.endswith("-worker-a")


@pytest.mark.parametrize(
    ("operation", "is_released"),
    [
        (compute_v1.Operation(), True),
        (compute_v1.Operation(error={"errors": [{"code": "INTERNAL"}]}), False),
        (None, False),
    ],
    ids=["finished", "failed", "unfinished"],
)
def test_policies_are_released_when_their_deletion_has_succeeded(
    operation: compute_v1.Operation | None, is_released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations: Any = SimpleNamespace(in_region=lambda *_: operation)
    placements = Placements("my-project", "http://127.0.0.1:9", operations)
    monkeypatch.setattr(
        placements._policies, "delete_unary", lambda **_: compute_v1.Operation(name="o")
    )
    assert placements.release(job_on_close_vms()) is is_released
    placements.close()
