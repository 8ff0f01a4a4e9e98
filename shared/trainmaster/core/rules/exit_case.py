"""One exit of a replica, and the facts about it that the rows of the rule table look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.actions import FailJob, Ignore
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import ReplicaExited
from trainmaster.core.model.exit_policy import PERMANENT_STATUSES, Blame, ExitAction, ExitPolicy, Preset, code_of
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules import messages
from trainmaster.core.rules.attribution import blame, may_be_collateral
from trainmaster.core.rules.repetition import bug_signature, is_quick_failure, is_transient
from trainmaster.core.timeouts import LIKELY_BUG_FAILURES, LOSS_REPORT_DELAY_MAX, QUICK_FAILURE_MAX_S


@dataclass(frozen=True, slots=True)
class Case:
    """One exit of a replica's current incarnation, and everything the rules may look at."""

    state: State
    replica: Replica
    event: ReplicaExited
    now: datetime

    @property
    def job(self) -> Job:
        return self.state.job

    @property
    def who(self) -> str:
        """`worker 1`."""
        return self.replica.replica_id.words

    @property
    def policy(self) -> ExitPolicy:
        return self.job.plan.exit_policy

    @property
    def code(self) -> int | None:
        return code_of(self.event.exit_status, self.event.signal)

    @property
    def user_action(self) -> ExitAction | None:
        """The action that the user's own exit rules choose; None if no such rule matches."""
        return self.policy.user_action(self.code, self.replica.replica_id.task_type)

    @property
    def hosts_left(self) -> int:
        """Number of hosts of the slice that still run after this exit 0. It is 0 for a VM."""
        host = self.event.subject.host
        if host is None:
            return 0
        return self.job.plan.group(self.replica.replica_id.task_type).hosts - len({*self.replica.hosts_done, host})

    @property
    def quick_failures(self) -> int:
        """Quick failures of the replica in a row, with this one; 0 if this failure was not quick."""
        return self.replica.quick_failures + 1 if is_quick_failure(self.event) else 0

    @property
    def after_pause(self) -> str:
        """` after a pause of 4 s`; empty if there is none."""
        pause_s = self.policy.restart_pause_s(self.quick_failures)
        return f" after a pause of {pause_s} s" if pause_s else ""

    @property
    def bug_advice(self) -> str:
        """What to do about failures that look like a bug, with a leading space; empty unless they do."""
        error = self.event.error
        may_be_transient = blame(self.event) is Blame.PEER or (error is not None and is_transient(error))
        if self.quick_failures < LIKELY_BUG_FAILURES or may_be_transient:
            return ""
        minutes = QUICK_FAILURE_MAX_S // 60
        return (
            f" {self.quick_failures} failures in a row, each within {minutes} minutes of the start, look like a bug. "
            f'`trainmaster.exitPolicy.fail: ["{self.code}"]` ends such a job at its first failure.'
        )

    @property
    def outcome(self) -> str:
        """`worker 1 exited with status 1 (ValueError)`."""
        return f"{self.who} {messages.exit_outcome(self.event)}"

    @property
    def may_be_collateral_failure(self) -> bool:
        """Whether the preset `service` calls an exit permanent that the loss of a peer may still explain."""
        is_service = self.policy.preset is Preset.SERVICE and self.code not in PERMANENT_STATUSES
        return is_service and may_be_collateral(self.job, self.event)

    @property
    def proves_bug(self) -> bool:
        """Whether the previous incarnation failed in the same way, and both failed quickly, in the job's own code."""
        event, previous = self.event, self.replica.previous
        return (
            previous is not None
            and previous.is_charged
            and previous.bug is not None
            and previous.bug == bug_signature(event)
            and (previous.exit_status, previous.signal) == (event.exit_status, event.signal)
        )

    def fail_unless_explained(self, rule: Rule, reason: Reason, text: str) -> Decision:
        """Return the decision to end the job, or to postpone this: a loss that explains the exit may come.

        A job that has ended cannot be started again. Within its budgets, a charge is refunded instead.
        """
        is_recent = abs(self.now - self.event.at) < LOSS_REPORT_DELAY_MAX
        if not is_recent or not may_be_collateral(self.job, self.event):
            return self.fail(rule, reason, text)
        text = f"{text} The loss of a peer may still explain this exit, so the job does not end yet."
        return Decision(rule, Reason.CAUSE_NOT_KNOWN_YET, text, Ignore())

    def fail(self, rule: Rule, reason: Reason, text: str) -> Decision:
        """Return the decision to end the job with this exit as its error message."""
        return Decision(rule, reason, text, FailJob(messages.replica_failed(self.event), self.replica.key))
