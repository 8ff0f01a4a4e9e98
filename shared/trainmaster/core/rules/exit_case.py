"""One exit of a replica, and the facts about it that the rows of the rule table look at.

A round is one common run of the members of a synchronous job. One of their exits, the verdict,
decides about all; any other replica is judged alone. `exit_texts` puts the facts into words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.events import End, ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import (
    PERMANENT_STATUSES,
    ExitAction,
    ExitPolicy,
    Preset,
    code_of,
)
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX, Job, State
from trainmaster.core.model.members import channel_members, has_kept_vm
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.round import Round
from trainmaster.core.rules.failure_row import hang_signature
from trainmaster.core.rules.hung_member import were_left
from trainmaster.core.rules.left_ranks import ranks_of, ranks_that_left
from trainmaster.core.rules.repetition import (
    bug_signature,
    is_quick_failure,
    left_signature,
)
from trainmaster.program_errors.meaning import Meaning, Place, is_peer_loss, meaning_of


@dataclass(frozen=True, slots=True)
class Case:
    """One exit that decides, and everything the rules may look at."""

    state: State
    replica: Replica
    """The replica that is charged. In a verdict, it may be a member that hung, and not the one that
    exited.
    """
    event: ReplicaExited
    now: datetime
    is_verdict: bool = False
    """Whether the exit decides about the round that ended; False: the replica is judged alone."""
    ends: tuple[End, ...] = ()
    """In a verdict: how the members of the round ended."""

    @property
    def job(self) -> Job:
        return self.state.job

    @property
    def ended_round(self) -> int:
        """Number of the round that a verdict judges.

        The job's round is the next one, which is held until the verdict.
        """
        return self.job.round.number - 1

    @property
    def who(self) -> str:
        """`worker 1`."""
        return self.replica.replica_id.words

    @property
    def record(self) -> Round | Replica:
        """The record that counts the failures: the round for all members, or the replica."""
        return self.job.round if self.is_verdict else self.replica

    @property
    def is_on_current_vm(self) -> bool:
        """Whether the program ran on the VM that the replica has now."""
        if self.is_hung:  # the event is about another member
            return has_kept_vm(self.job, self.replica)
        return self.event.subject.vm_generation == self.replica.vm_generation

    @property
    def program_began_at(self) -> datetime | None:
        """When the program that exited began; None: unknown."""
        return self.job.round.began_at if self.is_verdict else self.replica.ready_at

    @property
    def restarts_used(self) -> int:
        """Restarts of the replica that were charged, and count."""
        counted = self.policy.counted(self.replica.restarts, self.now)
        return len([at for at in counted if at not in self.state.excused])

    @property
    def policy(self) -> ExitPolicy:
        return self.job.plan.restarts.exit_policy

    @property
    def is_stall(self) -> bool:
        """Whether the agent ended the program because it hung."""
        return self.event.cause is ExitCause.STALLED

    @property
    def code(self) -> int | None:
        """The exit code that policies look at; None for a stall: the agent ended the program."""
        if self.is_stall:
            return None
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
    def failures_left(self) -> int | None:
        """Largest number of further failures of this replica until the job is FAILED, if this
        failure is charged as a restart. None: unknown, because each of several members has a
        budget, the job may run without the replica, or charged restarts expire.
        """
        has_peers = len(channel_members(self.job.plan)) > 1
        ends_job = is_required(self.job.plan, self.replica.replica_id)
        if has_peers or not ends_job or self.policy.window_s is not None:
            return None
        reruns_left = RERUNS_MAX - self.job.budgets.reruns_used
        if self.job.plan.restarts.restart_job_on_worker_restart:
            return reruns_left
        # A failure causes each rerun, and its attempt has all restarts again.
        failures_per_rerun = 1 + RESTARTS_MAX
        return RESTARTS_MAX - self.restarts_used + reruns_left * failures_per_rerun

    @property
    def is_hung(self) -> bool:
        """Whether the verdict charges the member that hung (`hung_member`) for another's exit."""
        return self.replica.replica_id != self.event.subject.replica_id

    @property
    def is_peer_loss_at_service(self) -> bool:
        """Whether the exit reports a lost peer, and is permanent only by the preset `service`."""
        is_service = self.policy.preset is Preset.SERVICE and self.code not in PERMANENT_STATUSES
        return is_service and self.meaning is not None and is_peer_loss(self.meaning)

    @property
    def proves_bug(self) -> bool:
        """Whether the last failure was the same, in the job's own code: both failed quickly, or
        both hung.
        """
        return self.record.bug is not None and self.record.bug == self.bug

    @property
    def bug(self) -> str | None:
        """The text that a repetition of this exit would have in common with it; None: a repetition
        would prove no bug.
        """
        if self.is_stall:
            return hang_signature(self.ends or (self.event,))
        had_left = bool(self.ranks_that_left) or (
            self.is_verdict and were_left(self.state, self.event, self.ends)
        )
        if had_left:
            return left_signature(self.event)
        return bug_signature(self.event, self.place)

    @property
    def ranks_that_left(self) -> str:
        """Which ranks of the only machine had exited 0 before others lost them, such as
        `2 of the 4 ranks`; empty: none is known to have.
        """
        if self.place.has_peers:
            return ""
        plan = self.job.placed.plan
        group = plan.group(self.event.subject.replica_id.task_type)
        return ranks_that_left(self.event, ranks_of(group.program or plan.program, group))

    @property
    def meaning(self) -> Meaning | None:
        """What the program's error means; None: it reported none."""
        error = self.event.error
        if error is None:
            return None
        return meaning_of(error.type, error.message, error.causes, self.place)

    @property
    def place(self) -> Place:
        """The surroundings of the program that exited."""
        plan = self.job.placed.plan
        group = plan.group(self.event.subject.replica_id.task_type)
        has_accelerators = group.accelerator is not None or group.tpu is not None
        machines = sum(group.count * group.hosts for group in plan.groups)
        return Place(has_accelerators, has_peers=machines > 1)
