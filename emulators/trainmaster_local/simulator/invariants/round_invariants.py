"""Invariants of rounds: decisions are compared with what really ended the programs.

A round is one common start of all members of a synchronous job. Its verdict decides which member's
failure ended it, and charges a restart to that member, or to none. The *primary* is the replica
whose exit 0 ends the job.

F1    no program of a round starts beside a program of another round (`simulator.world.programs`)
F2    a member that a verdict charges failed by itself
F3    every stop of a round leads to the next one, a rerun or the end: the job ends (I1)
F4    no job is FAILED without a failed program, a failed set-up or an error of Trainmaster
F5    SUCCEEDED only if the primary exited 0 in this attempt
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.core.actions import BeginRound, Budget, FailJob, RerunJob, StopRound
from trainmaster.core.decisions import Rule
from trainmaster.core.events import AllReady, ExitCause, ReplicaExited
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.world.program_ends import EndCause, ProgramEnds


@dataclass(slots=True)
class RoundInvariants:
    """The verdicts and the end of one job."""

    ends: ProgramEnds

    def apply(self, entry: LedgerEntry, state: State) -> None:
        """Check one more decision, which led to `state`."""
        event = entry.event
        action = entry.decision.action
        # The verdict on a round is the decision about AllReady, which carries the ends of its
        # members; the first of them decides.
        deciding = event.ends[0] if isinstance(event, AllReady) and event.ends else event
        is_reboot = isinstance(deciding, ReplicaExited) and deciding.cause is ExitCause.VM_RESTARTED
        charged = _charged(entry)
        if isinstance(event, AllReady) and event.round and charged:
            _attempt, _, task = charged.partition("-")
            ended_round = event.round - 1  # `event.round` is the next one, which is held
            causes = self.ends.causes(ReplicaId.parse(task), event.attempt, incarnation=ended_round)
            if EndCause.FAILED not in causes and not is_reboot:
                raise ViolationError(
                    f"F2: {entry.key} charges {charged}, whose program ended so: {causes}"
                )
        is_own = entry.decision.rule not in (Rule.VM_LOST, Rule.CAPACITY) and not is_reboot
        if isinstance(action, FailJob) and is_own and not self.ends.has(EndCause.FAILED):
            raise ViolationError(
                f"F4: {entry.key} fails the job, and no program has failed: {entry.decision.text}"
            )
        job = state.job
        # Until a rerun has begun, an exit 0 of the attempt before it is success.
        is_completed = any(
            self.ends.has(EndCause.COMPLETED, job.plan.primary, attempt)
            for attempt in (job.attempt, job.attempt - 1)
        )
        if job.state is JobState.SUCCEEDED and not is_completed:
            raise ViolationError(
                f"F5: {entry.key}: the primary has not exited 0 in attempt {job.attempt}"
            )


def _charged(entry: LedgerEntry) -> str | None:
    """Return the member that a verdict charges, as `ATTEMPT-TASK-INDEX`; None: it is free."""
    match entry.decision.action:
        case BeginRound(replica=replica, charge=Budget.RESTARTS):
            return replica
        case StopRound(replica=replica):
            return replica
        case RerunJob(reporter=replica, charge=Budget.RERUNS):
            return replica
        case FailJob(replica=replica):
            return replica
        case _:
            return None
