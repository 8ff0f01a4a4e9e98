"""VM loss with and without notice: the replica gets another VM of the same name, and no restart is
charged.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.process.loopback import call

HEAVY = pytest.mark.heavy(
    fact="each kind of loss of a VM, and stockouts, of a whole job",
    quick=(
        "`sim`, `explorer`, `unit/core/rules/test_vm_loss.py`, `unit/core/rules/test_capacity.py`,"
        " `integration/compute/test_system_events.py`"
    ),
)

pytestmark = pytest.mark.e2e

WORKER_0 = ReplicaId(TaskType.WORKER, 0)


def check_replacement(lab: Lab, job_id: str, old_id: str) -> None:
    """Wait until the worker runs on another VM of the same name; no restart is charged.

    Then cancel the job.
    """
    lab.until(lambda: lab.replica(job_id, WORKER_0).vm_generation == 2, 30)
    lab.until(lambda: lab.replica(job_id, WORKER_0).state is ReplicaState.RUNNING, 60)
    new = lab.vm(job_id, WORKER_0)
    assert new.name == vm_name(job_id, WORKER_0)
    assert new.instance_id != old_id
    assert provisioning_model(lab, new) == "STANDARD", (
        "also after the only permitted loss of a Spot VM"
    )
    assert lab.replica(job_id, WORKER_0).instance_id == new.instance_id
    lab.until(lambda: "begins after step" in lab.console(job_id, WORKER_0), 20)
    assert "begins after step 0," in lab.console(job_id, WORKER_0), "the new VM has an empty disk"
    state = lab.state(job_id)
    assert [replica.restarts_used for replica in state.replicas] == [0, 0]
    assert [replica.replaced for replica in state.replicas] == [0, 1]
    lab.cancel(job_id)


GPU: dict[str, object] = {
    "workerConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "1"}},
    "trainmaster": {"saveOnNotice": "replica"},
}
"""A VM that host maintenance cannot move."""
SPOT: dict[str, object] = {
    "trainmaster": {"spot": {"use": "workers", "onDemandAfter": 1}, "saveOnNotice": "replica"}
}


def provisioning_model(lab: Lab, vm: Vm) -> str:
    """Return the provisioning model in Compute Engine's words: STANDARD or SPOT."""
    state = lab.stack.state
    path = f"/compute/v1/projects/{state.config.project}/zones/{vm.zone}/instances/{vm.instance_id}"
    assert state.endpoints.compute is not None
    instance = call(state.endpoints.compute, "GET", path, None)
    return str(instance["scheduling"]["provisioningModel"])


@HEAVY
@pytest.mark.parametrize(
    ("fault", "notice", "changes"),
    [
        # Google's notice; the replacement does not wait for its end.
        pytest.param("maintenance", {"notice_s": 60}, GPU),
        pytest.param("upcoming_maintenance", {"notice_s": 3600}, GPU),
        ("preempt", {"notice_s": 30}, SPOT),
    ],
)
def test_vm_lost_with_notice_is_replaced_free_of_charge(
    lab: Lab, fault: str, notice: dict[str, float], changes: dict[str, object]
) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS, step_s=0.1, **changes)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    assert provisioning_model(lab, vm) == ("SPOT" if changes is SPOT else "STANDARD")
    getattr(lab.faults, fault)(vm.name, **notice)
    check_replacement(lab, job_id, vm.instance_id)
    reasons = [entry.decision.reason for entry in lab.decisions(job_id)]
    assert (Reason.PREEMPTION if fault == "preempt" else Reason.MAINTENANCE) in reasons


@HEAVY
def test_vm_crash_without_notice_is_judged_by_its_system_event(lab: Lab) -> None:
    """Only Compute Engine's system-event log reports the cause; a sweep would only find that the VM
    is gone.
    """
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    crashed_at = datetime.now(UTC)
    lab.faults.crash(vm.name)
    check_replacement(lab, job_id, vm.instance_id)
    (decision,) = [
        entry for entry in lab.decisions(job_id) if entry.decision.action.kind == "stop_round"
    ]
    assert decision.decision.reason is Reason.HOST_ERROR
    print(f"from the crash to the decision: {(decision.at - crashed_at).total_seconds():.2f} s")


@HEAVY
def test_machine_that_fails_the_preflight_is_replaced_before_its_program_starts(lab: Lab) -> None:
    gpu = {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "1"}}
    lab.faults.change(unfit_zones=["us-central1-a"])
    try:
        zones = {"zones": ["us-central1-a"]}
        job_id = lab.scripted(workers=1, steps=MANY_STEPS, workerConfig=gpu, trainmaster=zones)
        lab.until(lambda: lab.replica(job_id, WORKER_0).replaced, 60)
    finally:
        lab.faults.clear()
    lab.wait(job_id, "RUNNING")
    lab.finish(job_id)
    state = lab.wait_for_success(job_id, 90)
    (unfit,) = [
        entry.decision for entry in lab.decisions(job_id) if entry.decision.reason is Reason.UNFIT
    ]
    print(unfit.text)
    assert (
        "of worker 0 failed the preflight (Xid (PCI:0000:00:04): 79, GPU has fallen off the bus;"
        in unfit.text
    )
    assert [(replica.restarts_used, replica.replaced) for replica in state.replicas] == [
        (0, 0),
        (0, 1),
    ]
    assert state.job.budgets.reruns_used == 0


@HEAVY
def test_killed_program_restarts_in_the_same_vm_and_continues(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING")
    vm = lab.vm(job_id, WORKER_0)
    lab.until(lambda: "step 5/" in lab.console(job_id, WORKER_0), 30)
    lab.faults.kill_program(vm.name)
    lab.until(lambda: lab.console(job_id, WORKER_0).count(" begins after step ") == 2, 30)
    assert lab.vm(job_id, WORKER_0).instance_id == vm.instance_id
    assert lab.console(job_id, WORKER_0).count("begins after step 0") == 1
    lab.finish(job_id)
    state = lab.wait_for_success(job_id)
    assert [replica.restarts_used for replica in state.replicas] == [0, 1]


@HEAVY
def test_stockout_moves_the_job_to_the_next_zone(lab: Lab) -> None:
    lab.faults.change(stockout_zones=["us-central1-a"])
    try:
        job_id = lab.scripted(workers=1, steps=2)
        state = lab.wait_for_success(job_id, 90)
    finally:
        lab.faults.clear()
    assert state.job.zone != "us-central1-a"
    (stockout,) = [
        entry for entry in lab.decisions(job_id) if entry.decision.reason is Reason.STOCKOUT
    ]
    assert "us-central1-a" in stockout.decision.text


@HEAVY  # waits for the next request of VMs, one minute
def test_job_with_stockouts_in_all_zones_runs_when_capacity_returns(lab: Lab) -> None:
    """The job has its own machine type: zones with a recent stockout of a machine type come last
    for that type.
    """
    zones = [f"us-central1-{letter}" for letter in "abcdef"]
    lab.faults.change(stockout_zones=zones)
    try:
        job_id = lab.scripted(
            workers=1, steps=2, masterType="n1-highmem-2", workerType="n1-highmem-2"
        )
        lab.until(
            lambda: (
                lab.state(job_id).job.placement.round >= len(lab.state(job_id).job.plan.where.zones)
            ),
            60,
        )
        assert all(vm.status is VmStatus.CREATING for vm in lab.fleet.list_vms(job_id)), (
            "no VM ever ran"
        )
    finally:
        lab.faults.clear()
    lab.wait_for_success(job_id, 180)
