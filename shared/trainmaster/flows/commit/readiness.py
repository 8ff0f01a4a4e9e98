"""The start of a job, or of a round, when its last replica has reported that it is ready.

A job begins when every required replica of its attempt has been ready since its VMs were last moved
to another zone. The members of a synchronous job run together, in rounds: it waits in a held round
until every member is ready for it.
"""

from __future__ import annotations

from trainmaster.core.events import AllReady
from trainmaster.core.model.gang import required_replicas
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.members import is_member
from trainmaster.core.model.replica import ReplicaState, replica_key
from trainmaster.core.rules.evidence import round_key
from trainmaster.flows.commit.record import Deps, record
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision


def start_if_all_ready(
    job: Job | None, deps: Deps, entry_key: str | None = None, *, may_go_without: bool = False
) -> None:
    """Record that the job runs, if all required replicas of a preparing job have been ready.

    If all members are ready for a held round, request the provisioning that begins it. Safe to
    repeat.

    `job` may be the job as it was before the commit of the caller's event. A job that was running
    then needs no start. The replicas are counted after that commit: if the last two become ready at
    the same time, at least the later commit counts both. A job that has been rerun meanwhile
    ignores the start of its earlier attempt. While a round is held, `provision` starts the job.

    `entry_key` names a ledger entry that is pending until the held round begins. A request that
    names it, and comes second, costs one read. `may_go_without`: of an elastic job, only the
    members that have a VM must be ready.

    Call it for repeated events too, because the first handling may have ended between its two
    commits.
    """
    if job is None:
        return
    if job.round.is_held:
        key = round_key(job.attempt, job.round.number)
        ready = deps.store.count_ready_for(job.job_id, key, job.placement.floor)
        needed = sum(is_member(job.plan, replica_id) for replica_id in job.plan.replica_ids)
        if may_go_without and job.plan.restarts.elastic and job.started_at:
            needed = deps.store.count_replicas(job.job_id, job.attempt, (ReplicaState.RUNNING,))
        if ready >= needed:
            deps.bus.publish(
                topics.PROVISION,
                encode_provision(ProvisionRequest(job.job_id, entry_key)),
                attributes={},
            )
    elif job.state is JobState.PREPARING and _are_required_ready(job, deps):
        record(AllReady(job.job_id, job.attempt, deps.clock(), floor=job.placement.floor), deps)


def _are_required_ready(job: Job, deps: Deps) -> bool:
    """Whether every required replica has been ready since the gang last moved.

    Counting costs one read, whatever the number of replicas. Replicas that completed before the
    move are not counted: the next reconciliation finds that the start was missed. With `gang:
    false`, optional replicas count as well, so each required replica is read too, but only once
    enough replicas are ready.
    """
    required = required_replicas(job.plan)
    if deps.store.count_ready(job.job_id, job.attempt, job.placement.floor) < len(required):
        return False
    if job.plan.restarts.gang:
        return True
    for replica_id in required:
        loaded = deps.store.load(job.job_id, replica_key(job.attempt, replica_id))
        replica = loaded.state.find(job.attempt, replica_id) if loaded else None
        if replica is None or not replica.ever_ready:
            return False
    return True
