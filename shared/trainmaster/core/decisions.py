"""The answer of the rules to one event: `Decision(rule, reason, text, action)`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from trainmaster.core.actions import Action, Ignore


class Rule(IntEnum):
    """The ids of the rules in docs/rules.md; 0 is the normal course of a job.

    They are stored, and are not the order of judging. 5 is not used.
    """

    LIFECYCLE = 0
    STALE = 1
    PRIMARY_DONE = 2
    REPLICA_DONE = 3
    VM_LOST = 4
    RETRIES_DISABLED = 6
    ROUND = 7
    PERMANENT = 8
    CRASH = 9
    RESTART = 10
    CAPACITY = 11
    ENDED = 12
    TUNING = 13

    @property
    def is_judgement(self) -> bool:
        """Whether it says what an event means: not that the event is ignored, nor that it is the
        normal course of a job.
        """
        return self not in (Rule.LIFECYCLE, Rule.STALE)


class Reason(StrEnum):
    """Why a rule decided so: a word that is stored and counted. People read `Decision.text`, and
    docs/reasons.md, whose text is in `trainmaster.presentation.reasons`."""

    ACCEPTED = "accepted"
    PREPARING = "preparing"
    READY = "ready"
    HOST_READY = "host_ready"
    ALL_READY = "all_ready"
    JOB_ID_TAKEN = "job_id_taken"
    OUTDATED = "outdated"
    NOTHING_TO_DO = "nothing_to_do"
    PROVISIONAL = "provisional"
    PRIMARY_EXITED_ZERO = "primary_exited_zero"
    EXITED_ZERO = "exited_zero"
    HOST_EXITED_ZERO = "host_exited_zero"
    MAINTENANCE = "maintenance"
    PREEMPTION = "preemption"
    HOST_ERROR = "host_error"
    GONE = "gone"
    STARTUP_TIMEOUT = "startup_timeout"
    AGENT_SILENT = "agent_silent"
    VM_STOPPING = "vm_stopping"
    UNFIT = "unfit"
    MEMBERS_SAVE = "members_save"
    SAVED = "saved"
    VM_RESTARTED = "vm_restarted"
    STALLED = "stalled"
    SETUP_FAILED = "setup_failed"
    INTERNAL_BUDGET_SPENT = "internal_budget_spent"
    RETRIES_DISABLED = "retries_disabled"
    MEMBER_FAILED = "member_failed"
    ROUND_BEGINS = "round_begins"
    OUT_OF_MEMORY = "out_of_memory"
    COMMON_ERROR = "common_error"
    INSTALL_FAILED = "install_failed"
    IMAGE_FAILED = "image_failed"
    SAME_FAILURE_AGAIN = "same_failure_again"
    EXIT_POLICY = "exit_policy"
    CRASH_SIGNAL = "crash_signal"
    NON_ZERO_EXIT = "non_zero_exit"
    RESTARTS_SPENT = "restarts_spent"
    RERUNS_SPENT = "reruns_spent"
    RESTART_JOB_ON_WORKER_RESTART = "restart_job_on_worker_restart"
    STOCKOUT = "stockout"
    QUOTA = "quota"
    QUEUED = "queued"
    NEVER_ANY_CAPACITY = "never_any_capacity"
    BLOCKED = "blocked"
    OUT_OF_REACH = "out_of_reach"
    ZONES_EMPTIED = "zones_emptied"
    MAX_RUNNING_TIME = "max_running_time"
    MAX_WAIT_TIME = "max_wait_time"
    MAX_COST = "max_cost"
    COST_CHECKED = "cost_checked"
    CANCELLED_BY_USER = "cancelled_by_user"
    LABELS_CHANGED = "labels_changed"
    DELETED_BY_USER = "deleted_by_user"
    NOT_ENDED = "not_ended"
    MACHINES_RELEASED = "machines_released"
    MACHINES_LOST = "machines_lost"
    TRIAL_SUGGESTED = "trial_suggested"
    TRIAL_RUNNING = "trial_running"
    TRIALS_MEASURED = "trials_measured"
    TRIAL_UNPROMISING = "trial_unpromising"
    TRIAL_STOPPED = "trial_stopped"
    TRIAL_SUCCEEDED = "trial_succeeded"
    TRIAL_WITHOUT_METRIC = "trial_without_metric"
    TRIAL_FAILED = "trial_failed"
    TRIAL_CANCELLED = "trial_cancelled"
    TRIALS_DONE = "trials_done"
    TOO_MANY_TRIALS_FAILED = "too_many_trials_failed"
    NO_TRIAL_SUCCEEDED = "no_trial_succeeded"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of the rules to one event, as stored in the ledger."""

    rule: Rule
    reason: Reason
    text: str
    """One sentence for people."""
    action: Action

    @property
    def is_provisional(self) -> bool:
        """Whether the decision is not recorded.

        An event with the same key may be judged differently later, because time passes, another
        document changes, or the right VM reports it: a ledger entry would make the later event a
        duplicate. An exit after the end of its round is not recorded, either: all members may exit
        at once, and each reports its end again with its vm-ready.
        """
        return self.reason is Reason.PROVISIONAL


def provisional(text: str) -> Decision:
    """Return the decision to ignore an event that is early, or about what does not run.

    It is judged again when it is reported again.
    """
    return stale(Reason.PROVISIONAL, text)


def stale(reason: Reason, text: str) -> Decision:
    """Return the decision to ignore an event by rule 1: it is late, repeated, or
    changes nothing.
    """
    return Decision(Rule.STALE, reason, text, Ignore())
