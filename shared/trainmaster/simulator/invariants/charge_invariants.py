"""I3 over facts: charges are compared with what really ended the programs.

A replica that exited because another replica's program had left the cluster is not at fault. Such an exit costs no
restart if the end of the other program was reported within the same attempt. Two kinds of charges stay, as
docs/rules.md says: the loss of the other VM was reported later than `LOSS_REPORT_DELAY_MAX`; or the other program was
excused itself, by the loss of a third replica, so that its exit is no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import Budget, CancelJob, FailJob, ReplaceVm, RerunJob, RestartReplica, SucceedJob
from trainmaster.core.events import ChargeExplained, ExitCause, ReplicaExited, VmLost
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.replica import replica_key
from trainmaster.core.timeouts import LOSS_REPORT_DELAY_MAX
from trainmaster.simulator.invariants.violation import ViolationError
from trainmaster.simulator.world.program_ends import EndCause, ProgramEnd, ProgramEnds

CLOCK_ERROR_MAX: Final = timedelta(seconds=5)
"""Bound on the difference of two clocks, each of which is wrong by at most `Profile.skew_s`."""

Charge = tuple[str, int]
"""Key of a replica, and the incarnation whose exit was charged."""


@dataclass(frozen=True, slots=True)
class Report:
    """An exit or a loss that was not excused when it was judged."""

    event: ReplicaExited | VmLost
    replica: str
    """Key of the replica that the decision changed: of the event's attempt, or of the next one."""
    incarnation: int
    """The incarnation that the decision ended."""


@dataclass(slots=True)
class ChargeInvariants:
    """The charges of one job that have not been refunded."""

    ends: ProgramEnds
    _charged: dict[Charge, ReplicaExited] = field(default_factory=dict)
    _reports: list[Report] = field(default_factory=list)
    _ended_at: list[datetime] = field(default_factory=list)
    """When each attempt ended: by a rerun, or with the job."""

    def apply(self, entry: LedgerEntry) -> None:
        """Record one more decision."""
        event, action = entry.event, entry.decision.action
        if isinstance(event, ChargeExplained):
            self._charged.pop((replica_key(event.attempt, event.replica_id), event.incarnation), None)
        if isinstance(action, RerunJob | SucceedJob | FailJob | CancelJob):
            self._ended_at.append(entry.at)
        if isinstance(event, ReplicaExited | VmLost) and isinstance(action, RestartReplica | ReplaceVm):
            self._reports.append(Report(event, action.replica, action.ended.number))
            is_charged = isinstance(action, RestartReplica) and action.charge is Budget.RESTARTS
            if is_charged and isinstance(event, ReplicaExited):
                self._charged[action.replica, event.subject.incarnation] = event

    def check_end(self, ledger: Sequence[LedgerEntry]) -> None:
        """Check that each charge which a report explains was refunded. Called when nothing happens any more.

        A charge matters if the attempt did not end before a provisioning round that followed both the charge and the
        report: this round refunds.
        """
        provisioned_at = {entry.key: entry.done_at for entry in ledger}
        for charged in self._charged.values():
            subject = charged.subject
            incarnation = (subject.vm.instance_id, subject.attempt, subject.incarnation)
            culprit = self.ends.find_culprit(subject.replica_id, incarnation)
            if culprit is None:
                continue
            ended_at = self._ended_at[subject.attempt - 1] - CLOCK_ERROR_MAX
            for report in self._reports:
                times = [provisioned_at[event.key] for event in (charged, report.event)]
                was_provisioned = all(at and at < ended_at for at in times)
                is_same_attempt = report.replica.startswith(f"{subject.attempt}-")
                is_same = is_same_attempt and report.incarnation == culprit.vm_incarnation[2]
                if was_provisioned and is_same and self._explains(report.event, culprit, charged):
                    raise ViolationError(
                        f"I3: {charged.key} was charged and not refunded. The real cause is {culprit}, which "
                        f"{report.event.key} reported"
                    )

    def _explains(self, report: ReplicaExited | VmLost, culprit: ProgramEnd, charged: ReplicaExited) -> bool:
        """Return whether this event reported the culprit's end, in time and in the attempt of the charge."""
        subject = report.subject
        instance_id, attempt, incarnation = culprit.vm_incarnation
        is_of_culprit = (subject.replica_id, subject.vm.instance_id) == (culprit.replica_id, instance_id)
        if not is_of_culprit or not subject.attempt == attempt == charged.subject.attempt:
            return False
        is_exit = isinstance(report, ReplicaExited) and report.cause is ExitCause.PROCESS
        if is_exit is not (culprit.cause is EndCause.FAILED):
            return False
        if is_exit:
            key = replica_key(attempt, subject.replica_id)
            return (key, incarnation) in self._charged
        return report.at - charged.at <= LOSS_REPORT_DELAY_MAX
