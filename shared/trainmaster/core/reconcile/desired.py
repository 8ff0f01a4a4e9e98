"""The VMs that should exist, as a function of the stored state, and the existing VMs that match
them.

Each desired VM carries a directive, the order to its agent: run the replica's program, hold it, or
let it save as well. Members of a synchronous job are held until a round, their common run, begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from trainmaster.core.model.installation import name_in_installation
from trainmaster.core.model.job import Job
from trainmaster.core.model.members import channel_members, current_incarnation, is_member, may_run
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import PriceClass
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.round import SaveCause
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.core.model.vm_names import vm_name_with_prefix


@dataclass(frozen=True, slots=True)
class DesiredVm:
    """A VM that should exist, and the directive it should carry."""

    replica: Replica
    name: str
    directive: Directive
    may_create: bool
    """True if no agent has reported from this VM generation: a missing VM is then still to be
    created. False: a missing VM was lost.
    """
    is_paused: bool = False
    """Whether the VM may not be requested yet: several machines of the replica were wasted."""
    awaits_slices: bool = False
    """Whether the directive is HOLD only until the addresses of all TPU slices are known."""


def desired_vms(job: Job, replicas: tuple[Replica, ...], now: datetime) -> tuple[DesiredVm, ...]:
    """Return the VMs that should exist now, and what their agents should do.

    `replicas` are all replicas of the current attempt.

    A completed replica needs no VM: its VM is deleted, so that idle VMs cost nothing.

    A request to save has no effect when its time is over. A delivery may still use an old state
    then, although the round has ended; the next directive would stop programs that have only begun
    to save.
    """
    if job.state.is_terminal:
        return ()
    prefix = name_in_installation("tm")
    members = channel_members(job.plan) if job.round.without else ()
    without = tuple(number for number, member in enumerate(members) if member in job.round.without)
    return tuple(
        DesiredVm(
            replica,
            vm_name_with_prefix(prefix, job.set_id, replica.replica_id),
            _with_save(_directive(job, replica, without), job, replica, now),
            replica.awaits_vm,
            is_paused=replica.next_at is not None and now < replica.next_at,
        )
        for replica in replicas
        if replica.state is not ReplicaState.COMPLETED
    )


def _directive(job: Job, replica: Replica, without: tuple[int, ...]) -> Directive:
    """Return the order to run the replica's current incarnation, or to hold it.

    `without`: numbers of the members that the round goes without.
    """
    action = DirectiveAction.RUN if may_run(job, replica) else DirectiveAction.HOLD
    failing = job.round if is_member(job.plan, replica.replica_id) else replica
    paid_until = job.paid_until
    return Directive(
        replica.attempt,
        current_incarnation(job, replica),
        action,
        pause_s=job.plan.restarts.exit_policy.restart_pause_s(failing.quick_failures),
        without=() if action is DirectiveAction.HOLD else without,
        paid_until=int(paid_until.timestamp()) if paid_until else 0,
        tenure=job.tenure,
    )


def _with_save(directive: Directive, job: Job, replica: Replica, now: datetime) -> Directive:
    """Return the order to save as well, if the replica is asked to and runs."""
    saving = job.round.saving
    if saving is None or now > saving.until or replica.replica_id not in saving.asked:
        return directive
    if directive.action is not DirectiveAction.RUN:
        return directive
    saves_together = job.plan.saving.on_notice is SaveOnNotice.GANG
    has_asked_peers = saving.why is SaveCause.NOTICE
    asks_peers = saves_together and not has_asked_peers
    return replace(
        directive,
        action=DirectiveAction.SAVE,
        save_number=saving.number,
        until=int(saving.until.timestamp()),
        asks_peers=asks_peers and replica.replica_id == job.plan.primary,
    )


def match_vms(job: Job, desired: tuple[DesiredVm, ...], vms: tuple[Vm, ...]) -> dict[str, Vm]:
    """Return the existing VM of each desired one, by name; names without a VM are absent.

    If several VMs share a name, the highest VM generation counts, then the one in the job's zone.
    In the current VM generation, only the VM whose agent has reported counts.
    """
    replica_by_name = {target.name: target.replica for target in desired}
    candidates = sorted(
        (
            vm
            for vm in vms
            if vm.name in replica_by_name and not _is_other_vm(vm, replica_by_name[vm.name])
        ),
        key=lambda vm: (vm.vm_generation, vm.zone == job.zone),
    )
    return {vm.name: vm for vm in candidates}


def _is_other_vm(vm: Vm, replica: Replica) -> bool:
    """Whether the VM claims the replica's VM generation, which another VM has reported from.

    Such a VM was created by a repeated request. A slice reports the id of its node, which may be
    unknown to its hosts.
    """
    if vm.is_tpu or replica.instance_id is None or vm.vm_generation != replica.vm_generation:
        return False
    return vm.instance_id != replica.instance_id


def price_of_vm(plan: Plan, replica: Replica) -> PriceClass:
    """Return how the replica's current VM is bought.

    The number of lost VMs changes only together with the VM generation, so every repetition of an
    insert requests the same kind of VM.
    """
    group = plan.group(replica.replica_id.task_type)
    return group.purchase.price_after(replica.vms_lost)
