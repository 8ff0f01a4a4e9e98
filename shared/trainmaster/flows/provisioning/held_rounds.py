"""Begin the held round of a synchronous job, once its members are ready.

The members run in rounds: all start together, and when one of them ends, the next round is held
until all have reported. Then one decision, the verdict, says whose failure ended the last round,
and begins the held one, reruns the job or ends it.
"""

from __future__ import annotations

from trainmaster.core.events import AllReady, End
from trainmaster.core.model.job import Job
from trainmaster.core.model.members import members
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reconcile.steps import Readiness, Steps
from trainmaster.core.rules.evidence import hold_key, round_key
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning.delivery import Delivery
from trainmaster.ports import Loaded


def begin_round(delivery: Delivery, loaded: Loaded, steps: Steps) -> bool:
    """Let the verdict begin the held round, rerun the job or end it. `steps` of the same state.

    False: the members are not ready.
    """
    is_ready = steps.readiness is Readiness.READY
    if not is_ready and steps.readiness is not Readiness.REPORTED:
        return False
    job = loaded.state.job
    deps = delivery.deps
    ended_round = round_key(job.attempt, job.round.number - 1)
    ends = (*_late_losses(job, deps), *deps.store.round_ends(job.job_id, ended_round))
    if not is_ready and not ends:
        return False
    without: tuple[ReplicaId, ...] = ()
    if is_ready:
        without = tuple(member.replica_id for member in members(loaded.state) if member.awaits_vm)
    event = AllReady(
        job.job_id,
        job.attempt,
        deps.clock(),
        round=job.round.number,
        ends=ends,
        without=without,
    )
    recorded = record(event, deps, loaded=loaded)
    if recorded.entry.decision.is_provisional:
        return False
    delivery.take_verdict(recorded)
    return True


def _late_losses(job: Job, deps: Deps) -> tuple[End, ...]:
    """Return the losses of VMs that are evidence about the round that ended, although they were
    judged while it was still held: they were stored after it had begun.
    """
    ended = job.round.number - 1
    if ended < 1:
        return ()
    begin = AllReady(job.job_id, job.attempt, deps.clock(), round=ended)
    return deps.store.losses_after(job.job_id, hold_key(job.attempt, ended), begin.key)
