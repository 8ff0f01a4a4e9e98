"""One exit of a replica, and the facts about it that the rows of the rule table look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.actions import FailJob, RecordCompletion
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import End, ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import (
    PERMANENT_STATUSES,
    ExitAction,
    ExitPolicy,
    Preset,
    code_of,
)
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import channel_members, is_ready, members
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.round import Round
from trainmaster.core.rules import evidence, messages
from trainmaster.core.rules.repetition import bug_signature, is_quick_failure
from trainmaster.core.timeouts import LIKELY_BUG_FAILURES, QUICK_FAILURE_MAX_S
from trainmaster.program_errors.meaning import (
    Meaning,
    Place,
    is_passing,
    is_peer_loss,
    meaning_of,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One exit that decides, and everything the rules may look at."""

    state: State
    replica: Replica
    """The one that is charged: in a verdict, perhaps a member that the one that exited has lost."""
    event: ReplicaExited
    now: datetime
    is_verdict: bool = False
    """Whether the exit decides about the round that ended; False: the replica is judged alone."""
    ends: tuple[End, ...] = ()
    """In a verdict: how the members of the round ended."""

    @property
    def is_only_failure(self) -> bool:
        """In a verdict: whether no other member failed, and this one does not report the loss of
        one.
        """
        is_alone = all(evidence.replica_of(other) == self.replica.replica_id for other in self.ends)
        return not self.is_verdict or (is_alone and not evidence.reports_lost_peer(self.event))

    @property
    def job(self) -> Job:
        return self.state.job

    @property
    def who(self) -> str:
        """`worker 1`."""
        return self.replica.replica_id.words

    @property
    def record(self) -> Round | Replica:
        """What counts the failures: the round for all members, or the replica."""
        return self.job.round if self.is_verdict else self.replica

    @property
    def is_on_current_vm(self) -> bool:
        """Whether the program ran on the VM that the replica has now."""
        return self.is_hung or self.event.subject.vm_generation == self.replica.vm_generation

    @property
    def restarts_used(self) -> int:
        """Restarts of the replica that were charged, and count."""
        return len(self.policy.counted(self.replica.restarts, self.now))

    @property
    def policy(self) -> ExitPolicy:
        return self.job.plan.exit_policy

    @property
    def code(self) -> int | None:
        return code_of(self.event.exit_status, self.event.signal)

    @property
    def user_action(self) -> ExitAction | None:
        """The action that the user's own exit rules choose; None if no such rule matches."""
        return self.policy.user_action(self.code, self.event.subject.replica_id.task_type)

    @property
    def hosts_left(self) -> int:
        """Number of hosts of the slice that still run after this exit 0. It is 0 for a VM."""
        host = self.event.subject.host
        if host is None:
            return 0
        group = self.job.placed.plan.group(self.replica.replica_id.task_type)
        return group.hosts - len({*self.replica.hosts_done, host})

    @property
    def quick_failures(self) -> int:
        """Quick failures in a row, with this one; 0 if this failure was not quick."""
        return self.record.quick_failures + 1 if is_quick_failure(self.event) else 0

    @property
    def after_pause(self) -> str:
        """` after a pause of 4 s`; empty if there is none."""
        pause_s = self.policy.restart_pause_s(self.quick_failures)
        return f" after a pause of {pause_s} s" if pause_s else ""

    @property
    def bug_advice(self) -> str:
        """What to do about failures that look like a bug, with a leading space; empty unless they
        do.
        """
        may_pass = self.meaning is not None and is_passing(self.meaning)
        if self.quick_failures < LIKELY_BUG_FAILURES or may_pass:
            return ""
        minutes = QUICK_FAILURE_MAX_S // 60
        return (
            f" {self.quick_failures} failures in a row, each within {minutes} minutes of the start,"
            " look like a bug. "
            f'`trainmaster.exitPolicy.fail: ["{self.code}"]` ends such a job at its first failure.'
        )

    @property
    def outcome(self) -> str:
        """`worker 1 exited with status 1 (ValueError)`, or in a verdict `Round 8 ended: worker 1
        failed first: ...`.
        """
        if not self.is_verdict:
            return f"{self.who} {messages.exit_outcome(self.event)}"
        ended = f"Round {self.job.round.number - 1} ended"
        if self.event.cause is ExitCause.STALLED:
            stalls = [end for end in self.ends or (self.event,) if isinstance(end, ReplicaExited)]
            return f"{ended}: {messages.stalled_round(stalls, len(channel_members(self.job.plan)))}"
        failure, absent = messages.failure(self.event), self._absent
        if self.is_hung:
            return (
                f"{ended}: {self.who} did not answer, and {self.event.subject.replica_id.words}"
                f" failed: {failure}"
            )
        if absent is not None:
            is_recalled = (
                absent.ordered_at is not None and absent.ordered_at == self.job.round.ordered_at
            )
            failure += (
                f"; {absent.replica_id.words}"
                f" {'had exited 0' if is_recalled else 'reported no failure'}"
            )
        return f"{ended}: {self.who} failed first: {failure}"

    @property
    def is_hung(self) -> bool:
        """Whether the replica did not exit, and the one that did says that it had no answer."""
        return self.replica.replica_id != self.event.subject.replica_id

    @property
    def hung(self) -> Replica | None:
        """The only member that did not end by itself, if all others did because a peer did not
        answer; else None.
        """
        absent = self._absent
        is_known = (
            absent is not None
            and is_ready(self.job, absent)
            and evidence.has_kept_vm(self.job, absent)
        )
        is_told = evidence.reports_lost_peer(self.event) and any(
            map(evidence.reports_silent_peer, self.ends)
        )
        return absent if is_known and is_told else None

    @property
    def _absent(self) -> Replica | None:
        """The only member of the round that reported no failure, if all others lost a peer; else
        None.
        """
        known = {*map(evidence.replica_of, self.ends), *self.job.round.without}
        known |= {
            m.replica_id for m in members(self.state) if m.has_ended and is_ready(self.job, m)
        }
        others = [member for member in members(self.state) if member.replica_id not in known]
        is_told = all(map(evidence.speaks_for_lost_peer, self.ends or (self.event,)))
        return others[0] if is_told and len(others) == 1 else None

    def then(self, consequence: str) -> str:
        """Return the decision's text: what happened, and what follows."""
        if self.is_verdict:
            return f"{self.outcome}. {consequence[0].upper()}{consequence[1:]}"
        return f"{self.outcome}: {consequence}"

    def because(self, cause: str, consequence: str) -> str:
        """Return the text of a decision about something that happened to the VM of the replica."""
        if self.is_verdict:
            return f"Round {self.job.round.number - 1} ended: {cause}. Free of charge."
        return f"{cause[0].upper()}{cause[1:]}: {consequence}"

    @property
    def is_peer_loss_at_service(self) -> bool:
        """Whether the preset `service` calls an exit permanent that reports a lost peer."""
        is_service = self.policy.preset is Preset.SERVICE and self.code not in PERMANENT_STATUSES
        return is_service and self.meaning is not None and is_peer_loss(self.meaning)

    @property
    def proves_bug(self) -> bool:
        """Whether the last failure was the same, and both failed quickly, in the job's own code."""
        return self.record.bug is not None and self.record.bug == self.bug

    @property
    def bug(self) -> str | None:
        """What a repetition of this exit would have in common with it; None: it proves no bug."""
        return bug_signature(self.event, self.place)

    @property
    def meaning(self) -> Meaning | None:
        """What the program's error means; None: it reported none."""
        error = self.event.error
        if error is None:
            return None
        return meaning_of(error.type, error.message, error.causes, self.place)

    @property
    def place(self) -> Place:
        """What there is around the program that exited."""
        plan = self.job.placed.plan
        group = plan.group(self.event.subject.replica_id.task_type)
        has_accelerators = group.accelerator is not None or group.tpu is not None
        machines = sum(group.count * group.hosts for group in plan.groups)
        return Place(has_accelerators, has_peers=machines > 1)

    def fail(self, rule: Rule, reason: Reason, consequence: str) -> Decision:
        """Return the decision to end the job with this exit as its error message, or to give up an
        optional replica.
        """
        if not is_required(self.job.plan, self.replica.replica_id):
            text = self.then(f"{consequence} The job continues without {self.who}.")
            return Decision(rule, reason, text, RecordCompletion(self.replica.key, self.event.at))
        action = FailJob(messages.replica_failed(self.event), self.replica.key)
        return Decision(rule, reason, self.then(consequence), action)
