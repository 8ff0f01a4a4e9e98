"""Members: the replicas of a synchronous job that run in rounds.

A round is one common run: its members start together, and when one of them fails or loses its VM,
all start again in the next round, which is held until all of them are ready. All other replicas are
judged each alone. The gang is the VMs of a job, which move to another zone together.

An incarnation is one run of a replica's program. That of a member, `Replica.incarnation`, is the
round that it was last ready for; no document of a member is written when a round ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trainmaster.core.model.floor import NO_VM, is_below_floor, raise_to_floor
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId


def is_member(plan: Plan, replica_id: ReplicaId) -> bool:
    """Whether the replica runs in rounds."""
    return replica_id.is_in_cluster and plan.is_synchronous


def has_channel(plan: Plan) -> bool:
    """Whether the agents of the members have a peer channel.

    Hosts of TPU slices have no names of ours.
    """
    return plan.is_synchronous and not plan.tpu_zones


def channel_members(plan: Plan) -> tuple[ReplicaId, ...]:
    """Return the members in the order of their numbers in the peer channel."""
    if not plan.is_synchronous:
        return ()
    return tuple(replica_id for replica_id in plan.replica_ids if replica_id.is_in_cluster)


def is_held(job: Job, replica_id: ReplicaId) -> bool:
    """Whether the replica is a member, and waits for a round: all do, or this round goes without
    it.
    """
    if replica_id in job.round.without:
        return True
    return job.round.is_held and is_member(job.plan, replica_id)


def may_run(job: Job, replica: Replica) -> bool:
    """Whether the replica's program may run: its VM is known, because its first report is stored,
    and a member's round has begun.
    """
    return replica.instance_id is not None and not is_held(job, replica.replica_id)


def has_run(job: Job, replica: Replica) -> bool:
    """Whether the replica's program may have run in this attempt."""
    if is_member(job.plan, replica.replica_id):
        return job.round.number > 1 or not job.round.is_held
    return replica.ever_ready


def may_run_where_requested(state: State) -> bool:
    """Whether a program may run in the zone that the gang is requested in now: a VM there is known,
    and a round of a synchronous job has begun. `state` holds the whole attempt.
    """
    job = state.job
    has_begun = not job.plan.is_synchronous or job.round.began_at is not None
    return has_begun and any(
        replica.instance_id is not None and replica.state is not ReplicaState.COMPLETED
        for replica in state.replicas
    )


def may_go_without(plan: Plan, missing: Collection[ReplicaId]) -> bool:
    """Whether a round may begin without these members: an elastic job has the primary and enough
    others left.
    """
    elastic = plan.restarts.elastic
    if elastic is None or plan.primary in missing:
        return False
    return sum(group.count for group in plan.groups) - len(missing) >= elastic.min_replicas


def has_started(state: State) -> bool:
    """Whether all required replicas have been ready: the job is RUNNING, or will be once that is
    recorded.
    """
    return state.job.started_at is not None or is_start_missed(state)


def is_start_missed(state: State) -> bool:
    """Whether the job does not run although its required replicas have been ready: the function
    that counted died, or they are not all counted. False unless `state` holds the whole attempt.

    The start of a synchronous job cannot be missed: it is the beginning of a round.
    """
    job = state.job
    is_unrecorded = state.whole and job.state is JobState.PREPARING and job.tuning is None
    return is_unrecorded and not job.plan.is_synchronous and not awaited_for_start(state)


def awaited_for_start(state: State) -> tuple[Replica, ...]:
    """Return the required replicas that have not been ready since the gang last moved, and without
    which a preparing job does not begin to run. `state` holds the whole attempt.
    """
    if state.job.state is not JobState.PREPARING:
        return ()
    return tuple(
        replica
        for replica in state.replicas
        if is_required(state.job.plan, replica.replica_id) and not replica.ever_ready
    )


def can_spare(state: State, replica_id: ReplicaId) -> bool:
    """Whether the job goes on without this member, besides those that it goes without already."""
    return goes_on(state, {*state.job.round.without, replica_id})


def is_refused(job: Job) -> bool:
    """Whether Google has refused VMs since the held round was ordered, or the pause after a refusal
    lasts. After a move to another zone, VMs are requested at once: they do not count as refused.
    """
    next_at = job.placement.next_at
    ordered_at = job.round.ordered_at
    return next_at is not None and ordered_at is not None and next_at > ordered_at


def goes_on(state: State, missing: Collection[ReplicaId] | None = None) -> bool:
    """Whether the job goes on without these members, by default those that await VMs.

    `state` holds the attempt.
    """
    if missing is None:
        missing = {member.replica_id for member in members(state) if member.awaits_vm}
    return has_started(state) and may_go_without(state.job.plan, missing)


def current_incarnation(job: Job, replica: Replica) -> int:
    """Return the incarnation that is ordered: for a member the number of the round."""
    if is_member(job.plan, replica.replica_id):
        return job.round.number
    return replica.incarnation


def is_ready(job: Job, replica: Replica) -> bool:
    """Whether the replica has reported that it is ready for the incarnation that is ordered."""
    return replica.state is ReplicaState.RUNNING and replica.incarnation == current_incarnation(
        job, replica
    )


def has_kept_vm(job: Job, replica: Replica) -> bool:
    """Whether the replica still has the VM that it had when the held round was ordered."""
    ordered_at = replica.ordered_at
    held_at = job.round.ordered_at
    return ordered_at is not None and held_at is not None and ordered_at < held_at


def state_word(job: Job, replica: Replica) -> str:
    """Return the replica's state as users see it.

    While its round is held, a member is STOPPING until its agent reports that nothing older runs,
    and then HELD: it waits for the others.
    """
    if (
        replica.state is not ReplicaState.RUNNING
        or job.state.is_terminal
        or not is_held(job, replica.replica_id)
    ):
        return replica.state.value
    return "HELD" if is_ready(job, replica) else "STOPPING"


def members(state: State) -> tuple[Replica, ...]:
    """Return the loaded members; empty if the job is not synchronous."""
    if not state.job.plan.is_synchronous:
        return ()
    return tuple(replica for replica in state.replicas if replica.replica_id.is_in_cluster)


def joining_members(state: State) -> tuple[Replica, ...]:
    """Return the members that the running round goes without, and that are ready; none once a
    member has completed.
    """
    if any(member.state is ReplicaState.COMPLETED for member in members(state)):
        return ()
    without = set(state.job.round.without)
    return tuple(
        member
        for member in members(state)
        if member.replica_id in without and is_ready(state.job, member)
    )


def recall(state: State) -> State:
    """Return the state with the members that completed in an earlier round recalled: they wait for
    another VM. So do replicas whose VM generation is below the floor.

    The others may wait for them. Stores and `core.evolve` return states in this form, so that
    neither the end of a round nor a move writes documents of replicas that it only concerns.
    """
    job = state.job
    if not any(
        _is_recalled(job, replica) or is_below_floor(job, replica) for replica in state.replicas
    ):
        return state
    return replace(
        state,
        replicas=tuple(_above_floor(job, _recalled(job, replica)) for replica in state.replicas),
    )


def _above_floor(job: Job, replica: Replica) -> Replica:
    if not is_below_floor(job, replica):
        return replica
    return raise_to_floor(job, replica, is_member=is_member(job.plan, replica.replica_id))


def _is_recalled(job: Job, replica: Replica) -> bool:
    is_completed = replica.state is ReplicaState.COMPLETED and replica.attempt == job.attempt
    return is_completed and replica.incarnation != current_incarnation(job, replica)


def _recalled(job: Job, replica: Replica) -> Replica:
    if not _is_recalled(job, replica):
        return replica
    waiting = replace(
        replica, state=ReplicaState.WAITING, vm_generation=replica.vm_generation + 1, **NO_VM
    )
    return replace(waiting, ordered_at=job.round.ordered_at, done_at=None)
