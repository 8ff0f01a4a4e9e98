"""VMs as the fleet lists them, and the steps that a reconciliation plans for a job and its VMs.

The job is that of `tests.support.jobs`: a chief and two workers.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_replica, a_state, at
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.plan import plan
from trainmaster.core.reconcile.steps import (
    Create,
    Step,
)

NOW = at(100)

RUN_1 = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)

RUN_2 = Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)

HOLD_2 = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)

ALL = (CHIEF, WORKER_0, WORKER_1)


def a_vm(replica_id: ReplicaId = CHIEF, **changes: object) -> Vm:
    """Return the first VM of the replica, in which its first incarnation runs."""
    vm = Vm(
        vm_name("digits_1", replica_id),
        zone="us-central1-a",
        instance_id="1001",
        status=VmStatus.RUNNING,
        replica_id=replica_id,
        vm_generation=1,
        directive=RUN_1,
        fingerprint="1",
    )
    return replace(vm, **changes)  # type: ignore[arg-type]


def steps(state: State, *vms: Vm) -> tuple[Step, ...]:
    """Return what is to be done so that these VMs become those that the state desires."""
    return plan(state, vms, NOW).steps


def creates(state: State, *vms: Vm) -> list[Create]:
    """Return the requests for VMs among the steps."""
    return [step for step in steps(state, *vms) if isinstance(step, Create)]


def all_vms(*others: Vm) -> list[Vm]:
    """Return a running VM for each replica, with `others` in place of theirs."""
    given = {vm.replica_id: vm for vm in others}
    return [given.get(replica_id) or a_vm(replica_id) for replica_id in ALL]


def preparing(**changes: object) -> State:
    """Return a job none of whose VMs has been created."""
    waiting = [a_replica(replica_id, ReplicaState.WAITING) for replica_id in ALL]
    return a_state(*waiting, job=a_job(JobState.PREPARING, **changes))  # type: ignore[arg-type]
