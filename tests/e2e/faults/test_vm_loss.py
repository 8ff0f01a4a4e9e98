"""VMs that go away, with notice and without: the replica gets another VM of the same name, and nobody pays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from emulators.stack.loopback import call
from shared.core.decisions import Reason
from shared.core.model.replica import ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import Vm, VmStatus
from shared.core.model.vm_names import vm_name
from tests.e2e.conftest import Lab

pytestmark = pytest.mark.e2e

WORKER_0 = ReplicaId(TaskType.WORKER, 0)
LONG = 100_000
"""Steps, ten a second: the job is cancelled when the test has seen what it came for."""


@pytest.fixture(scope="module", autouse=True)
def refused_everywhere(lab: Lab) -> str:
    """A job for which there was no room in any zone. Before all tests of this module: it asks again after a minute.

    Its machines are of a type of their own: a zone that has lately had no room for some comes last for such.
    """
    zones = [f"us-central1-{letter}" for letter in "abcdef"]
    lab.faults.change(stockout_zones=zones)
    try:
        job_id = lab.scripted(workers=1, steps=2, masterType="n1-highmem-2", workerType="n1-highmem-2")
        lab.until(lambda: lab.state(job_id).job.placement.round >= len(lab.state(job_id).job.plan.zones), 60)
        assert all(vm.status is VmStatus.CREATING for vm in lab.fleet.list_vms(job_id)), "none ever ran"
    finally:
        lab.faults.clear()
    return job_id


def replaced(lab: Lab, job_id: str, old_id: str) -> None:
    """The worker is up again on another VM of the same name, nobody paid, and cancelling leaves no VM."""
    lab.until(lambda: lab.replica(job_id, WORKER_0).vm_generation == 2, 30)
    lab.until(lambda: lab.replica(job_id, WORKER_0).state is ReplicaState.RUNNING, 60)
    new = lab.vm(job_id, WORKER_0)
    assert new.name == vm_name(job_id, WORKER_0)
    assert new.instance_id != old_id
    assert bought(lab, new) == "STANDARD", "also where it lost the one Spot VM that it may lose"
    assert lab.replica(job_id, WORKER_0).instance_id == new.instance_id
    lab.until(lambda: "begins after step" in lab.console(job_id, WORKER_0), 20)
    assert "begins after step 0," in lab.console(job_id, WORKER_0), "another VM has another disk"
    state = lab.state(job_id)
    assert [each.restarts_used for each in state.replicas] == [0, 0]
    assert [each.replaced for each in state.replicas] == [0, 1]
    lab.cancel(job_id)


GPU: dict[str, object] = {"workerConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "1"}}}
"""A VM that host maintenance cannot move."""
SPOT: dict[str, object] = {"trainmaster": {"spot": {"use": "workers", "onDemandAfter": 1}}}


def bought(lab: Lab, vm: Vm) -> str:
    """As Compute says it."""
    state = lab.stack.state
    path = f"/compute/v1/projects/{state.config.project}/zones/{vm.zone}/instances/{vm.instance_id}"
    assert state.endpoints.compute is not None
    found = call(state.endpoints.compute, "GET", path, None)
    return str(found["scheduling"]["provisioningModel"])


@pytest.mark.parametrize(
    ("fault", "notice", "changes"),
    [
        ("maintenance", {"notice_s": 1}, GPU),
        ("upcoming_maintenance", {"in_s": 3600}, GPU),
        ("preempt", {"notice_s": 1}, SPOT),
    ],
)
def test_a_vm_that_is_taken_away_with_notice_is_replaced(
    lab: Lab, fault: str, notice: dict[str, float], changes: dict[str, object]
) -> None:
    job_id = lab.scripted(1, LONG, 0.1, **changes)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    assert bought(lab, vm) == ("SPOT" if changes is SPOT else "STANDARD")
    getattr(lab.faults, fault)(vm.name, **notice)
    replaced(lab, job_id, vm.instance_id)
    reasons = [entry.decision.reason for entry in lab.decisions(job_id)]
    assert (Reason.PREEMPTION if fault == "preempt" else Reason.MAINTENANCE) in reasons


def test_a_vm_that_crashes_without_a_word_is_being_replaced_within_ten_seconds(lab: Lab) -> None:
    """Only Compute's system-event audit log speaks for it, and only that knows the cause: a sweep finds a VM gone."""
    job_id = lab.scripted(workers=1, steps=LONG)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    crashed_at = datetime.now(UTC)
    lab.faults.crash(vm.name)
    replaced(lab, job_id, vm.instance_id)
    (decision,) = [entry for entry in lab.decisions(job_id) if entry.decision.action.kind == "replace_vm"]
    assert decision.decision.reason is Reason.HOST_ERROR
    print(f"from the crash to the decision: {(decision.at - crashed_at).total_seconds():.2f} s")
    assert decision.at - crashed_at < timedelta(seconds=10)


def test_a_killed_program_goes_on_in_its_vm_where_it_was(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=150)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    lab.until(lambda: "step 5/" in lab.console(job_id, WORKER_0), 30)
    lab.faults.kill_program(vm.name)
    lab.until(lambda: lab.console(job_id, WORKER_0).count(" begins after step ") == 2, 30)
    assert lab.vm(job_id, WORKER_0).instance_id == vm.instance_id
    assert lab.console(job_id, WORKER_0).count("begins after step 0") == 1
    state = lab.ended_well(job_id)
    assert [each.restarts_used for each in state.replicas] == [0, 1]


def test_a_stockout_moves_the_job_to_the_next_zone(lab: Lab) -> None:
    lab.faults.change(stockout_zones=["us-central1-a"])
    try:
        job_id = lab.scripted(workers=1, steps=2)
        state = lab.ended_well(job_id, 90)
    finally:
        lab.faults.clear()
    assert state.job.zone != "us-central1-a"
    (error_kind,) = [entry for entry in lab.decisions(job_id) if entry.decision.reason is Reason.STOCKOUT]
    assert "us-central1-a" in error_kind.decision.text


def test_a_stockout_everywhere_is_waited_out(lab: Lab, refused_everywhere: str) -> None:
    lab.ended_well(refused_everywhere, 180)
