"""Messages that users read: errorMessages of jobs, and parts of the texts of decisions, which other
modules of `core.rules` put together.

Those that begin with words of AI Platform Training (the service) stay verbatim, because clients
match on them.

Source: the service's documented messages, and messages that its users quoted.

An exit has words of several lengths:

cause, short_cause   the program's own error: `ValueError: bad shape (trainer/task.py:41 in main)`
exit_outcome         the rest of a sentence after the replica's name: `exited with status 1: …`
failure              its own error or, without one, `it` and its outcome
short_failure        as `failure`, in the list of a job's failures: `exit status 1; stderr ends …`
replica_failed       the whole errorMessage of the job that the exit ended
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from trainmaster.core.events import CapacityErrorKind, ExitCause, ReplicaExited, VmsNotCreated
from trainmaster.core.model.job import public_id
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import Trial, TrialState, Tuning
from trainmaster.core.rules.crash import crash_place, crash_signal
from trainmaster.core.rules.remedies import remedy_of_exit
from trainmaster.core.rules.stall_texts import hang_place, stall_reason
from trainmaster.program_errors.last_words import closing_line

CONSOLE_LOGS: Final = "https://console.cloud.google.com/logs/viewer"
CANCELLED_BY_USER: Final = "Job is cancelled by the user"
INTERNAL_ERROR: Final = "Internal error occurred for the current attempt"
JOB_EXISTS: Final = "Field: job.job_id Error: A job with this id already exists."

IMAGE_ERROR: Final = "ImageError"
"""Type of the error of a VM that cannot get the container image. Source: the agent's
`setup/container_image.py`.
"""

CAUSE_LENGTH_MAX: Final = 240
"""Characters of an error's type and message in a decision, at most. An errorMessage has all."""
LAST_WORDS_MAX: Final = 256
"""Characters of the last words of an output, at most. The agent cuts those on standard error."""
_STATUS_VALUES: Final = 256
_SIGNALS_OF_CHILDREN: Final = frozenset(
    (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV)
)
"""Signals that end a child process. Others, such as 1, are also the negative of plain statuses."""
MEMBERS_SHOWN: Final = 5
"""Members that a sentence names, at most."""

_QUOTA_NAME: Final = re.compile(r"[Qq]uota (?:limit |metric )?'([^']+)'")
"""Source: the messages of QUOTA_EXCEEDED of Compute Engine and of RESOURCE_EXHAUSTED of Cloud TPU.
"""


def member_names(members: Sequence[ReplicaId]) -> str:
    """Return the first members in words, and how many more there are."""
    more = f" and {len(members) - MEMBERS_SHOWN} more" if len(members) > MEMBERS_SHOWN else ""
    return ", ".join(member.words for member in members[:MEMBERS_SHOWN]) + more


def capacity_problem(event: VmsNotCreated) -> str:
    """Return which quota was used up, or where there was no capacity."""
    if event.error_kind is CapacityErrorKind.INTERNAL:
        return f"Google fails to create VMs ({event.code})"
    if event.error_kind in (CapacityErrorKind.BLOCKED, CapacityErrorKind.DENIED):
        return f"Google refuses the request ({event.code})"
    if event.error_kind is not CapacityErrorKind.QUOTA:
        return f"no capacity in {event.zone}"
    quota = _QUOTA_NAME.search(event.message)
    return f"the quota {quota[1]} is used up" if quota else "a quota is used up"


def exit_status(event: ReplicaExited) -> str:
    """Return the exit status as the service wrote it: `1`, or `9(SIGKILL)` for a signal."""
    if event.signal is None:
        return str(event.exit_status if event.exit_status is not None else "unknown")
    try:
        return f"{event.signal}({signal.Signals(event.signal).name})"
    except ValueError:
        return str(event.signal)


def exit_outcome(event: ReplicaExited) -> str:
    """Return what ended the replica: the rest of a sentence that begins with its name."""
    if event.cause is ExitCause.INSTALL:
        return installation_outcome(event)
    if event.cause is ExitCause.VM_RESTARTED:
        return "was interrupted by a reboot of its VM"
    if event.cause is ExitCause.STALLED:
        return f"was ended because {stall_reason(event)}{hang_place(event)}"
    if event.out_of_memory:
        return f"ran out of memory ({exit_status(event)})"
    if event.signal is not None:
        error = f": {short_cause(event)}" if event.error else _crash_place(event)
        return f"was ended by signal {exit_status(event)}{error}"
    return f"exited with status {exit_status(event)}{_details(event)}"


def _details(event: ReplicaExited) -> str:
    """Return what the program printed about its failure, as the rest of a sentence: its error or,
    without a traceback, its last words. Empty if it printed neither.
    """
    if event.error is not None:
        return f": {short_cause(event)}"
    words = _last_words(event)
    return f"{_of_child(event)}; {words}" if words else _of_child(event)


def _of_child(event: ReplicaExited) -> str:
    """Return what an exit status means that is the negative number of a signal, as Python's
    `subprocess` reports it, in the eight bits of a status; empty for another one.
    """
    number = _STATUS_VALUES - event.exit_status if event.exit_status is not None else 0
    if number not in _SIGNALS_OF_CHILDREN:
        return ""
    name = signal.Signals(number).name
    return f", as sys.exit(-{number}) does for a child process that {name} ended"


def _last_words(event: ReplicaExited) -> str:
    """Return the last words of a program that exited with a status: `stderr ends with "…"`; empty
    if it printed none. Standard output counts if standard error has none.
    """
    if event.cause is not ExitCause.PROCESS or event.exit_status is None:
        return ""
    if event.stderr_line:
        return f'stderr ends with "{event.stderr_line}"'
    line = closing_line(event.tail)[:LAST_WORDS_MAX]
    return f'its output ends with "{line}"' if line else ""


def _crash_place(event: ReplicaExited) -> str:
    """Return where the program was when a signal ended it, as `crash_place` does; empty if no
    signal did, or if its error says more.
    """
    return crash_place(event) if event.signal is not None and event.error is None else ""


def installation_outcome(event: ReplicaExited) -> str:
    """Return what the agent could not install, as the rest of a sentence."""
    if has_image_error(event):
        return "could not get its container image"
    return "could not install its packages"


def has_image_error(event: ReplicaExited) -> bool:
    """Return whether the replica's container image, or an engine for it, is missing."""
    return event.error is not None and event.error.type == IMAGE_ERROR


def failure(event: ReplicaExited) -> str:
    """Return what ended the replica: its own error in one line, or a clause."""
    is_error = event.cause is ExitCause.PROCESS and not event.out_of_memory
    return (short_cause(event) if is_error else "") or f"it {exit_outcome(event)}"


def short_failure(event: ReplicaExited) -> str:
    """Return what ended the replica, as short as it can be recognized:
    `FileNotFoundError: no file data/train.csv (train.py:18)`.
    """
    is_error = event.cause is ExitCause.PROCESS and not event.out_of_memory
    if is_error and event.error is not None:
        return short_cause(event)
    if is_error and event.signal is None:
        return f"exit status {exit_status(event)}{_details(event)}"
    return f"it {exit_outcome(event)}"


def replica_failed(event: ReplicaExited, plan: Plan, silent: ReplicaId | None = None) -> str:
    """Return the errorMessage of a job that this exit ended: what happened, its cause, what to do,
    the last output. `silent`: the member that did not answer the one that exited, if that is the
    cause.
    """
    who = f"The replica {event.subject.replica_id.words}"
    if silent is not None:
        who = f"The replica {silent.words} did not answer its peers, and {who[0].lower()}{who[1:]}"
    if event.out_of_memory:
        message = (
            f"{who} ran out-of-memory and exited with a non-zero status of {exit_status(event)}."
        )
    elif event.cause is ExitCause.INSTALL:
        status = f" (status {exit_status(event)})" if event.exit_status is not None else ""
        message = f"{who} {installation_outcome(event)}{status}."
    elif event.cause is ExitCause.VM_RESTARTED:
        message = f"{who} was interrupted by reboots of its VM."
    elif event.cause is ExitCause.STALLED:
        message = f"{who} was ended because {stall_reason(event)}{hang_place(event)}."
    else:
        status = f"{exit_status(event)}{_crash_place(event)}"
        message = f"{who} exited with a non-zero status of {status}."
    tail = event.tail.strip()
    words = _last_words(event)
    message_has_cause = event.cause is ExitCause.STALLED
    why = "" if message_has_cause else cause(event) or f"{words[:1].upper()}{words[1:]}"
    lines = [line for line in (why, remedy_of_exit(event, plan)) if line]
    if tail:
        lines += ["", tail] if lines else [tail]
    return f"{message} \n" + "\n".join(lines) if lines else message


CAUSE_LINES: Final = 3
"""Lines of an errorMessage before the program's last output, at most: what happened, its cause,
what to do.
"""


def summary(error_message: str) -> str:
    """Return an errorMessage in one line, without the program's last output, which follows the
    cause after a blank line.
    """
    first, *following = [line.strip() for line in error_message.splitlines()] or [""]
    causes = following[:CAUSE_LINES]
    if "" not in causes:
        return first  # no blank line follows: what comes after the first line is output
    return " ".join([first, *causes[: causes.index("")]])


def cause(event: ReplicaExited) -> str:
    """Return the program's own error in one line: `ValueError: bad shape (trainer/task.py:41 in
    main)`.
    """
    return f"{_error_words(event)}{_place(event)}"


def short_cause(event: ReplicaExited) -> str:
    """Return the program's own error as `cause` does, but cut to `CAUSE_LENGTH_MAX`."""
    words = _error_words(event)
    if len(words) > CAUSE_LENGTH_MAX:
        words = f"{words[: CAUSE_LENGTH_MAX - 3].rstrip()}..."
    return f"{words}{_place(event).replace(' in <module>', '')}"


def _error_words(event: ReplicaExited) -> str:
    """Return type and message of the program's error in one line; empty if there is none."""
    if event.error is None:
        return ""
    headline = event.error.headline
    return f"{event.error.type}: {headline}" if headline else event.error.type


def _place(event: ReplicaExited) -> str:
    """Return ` (trainer/task.py:41 in main)`: in the job's own code if it is known; empty if no
    place is known. Of a launched process that crashed, it is where that was.
    """
    if event.error is None:
        return ""
    crashed = crash_place(event) if crash_signal(event) is not None else ""
    if crashed:
        return crashed
    frame = event.error.own_frame or event.error.frame
    return f" ({frame})" if frame else ""


def with_log_link(message: str, project: str, job_id: str) -> str:
    """Return the message with a link to the job's log, as the service ended such messages."""
    job_id = public_id(job_id)
    log_filter = quote(f'resource.type="ml_job"\nresource.labels.job_id="{job_id}"', safe="")
    resource = f"ml_job%2Fjob_id%2F{job_id}"
    address = f"{CONSOLE_LOGS}?project={project}&resource={resource}&advancedFilter={log_filter}"
    return (
        f"{message}\n\nTo find out more about why your job exited please check the logs: {address}"
    )


def no_resources(requested: str, error: str) -> str:
    """Return the errorMessage of a job that never got VMs."""
    return (
        f"The job was stopped after too many retries: no resources for {requested} in its region."
        f" {error}."
    )


def internal_error(cause: str) -> str:
    """Return the errorMessage of a job that ended by an internal error."""
    return f"{INTERNAL_ERROR}: {cause}"


def trial_flags(tuning: Tuning, values: tuple[str, ...]) -> str:
    """Return the flags of a trial's program: `--learning-rate 0.01 --optimizer adam`."""
    return " ".join(
        f"--{parameter.name} {parameter.value}" for parameter in tuning.assignments(values)
    )


def too_many_trials_failed(tuning: Tuning, last: Trial) -> str:
    """Return the service's message about the end of a tuning job.

    Source: users' quotations, with its missing and double spaces.
    """
    failed = len(tuning.of_state(TrialState.FAILED))
    return (
        f"Hyperparameter Tuning Trial #{last.number} failed. {failed} total hyperparameter trial"
        f" failures were seen, out of {len(tuning.trials)} trials attempted which reaches the"
        f" user-specified limit of {tuning.max_failed}.The last trial to fail was #{last.number},"
        f" {_with_error(tuning, last)}"
    )


def trial_failed_first(tuning: Tuning, last: Trial) -> str:
    """Return a message in the form of `too_many_trials_failed`. It is ours."""
    return (
        f"Hyperparameter Tuning Trial #{last.number} failed before any other trial succeeded; it"
        f" had run {_with_error(tuning, last)}"
    )


def no_trial_succeeded(tuning: Tuning, last: Trial | None) -> str:
    summary = (
        f"No hyperparameter tuning trial succeeded, out of {len(tuning.trials)} trials attempted."
    )
    return (
        f"{summary} The last trial to fail was #{last.number}, {_with_error(tuning, last)}"
        if last
        else summary
    )


def _with_error(tuning: Tuning, trial: Trial) -> str:
    parameters = "".join(
        f"{parameter.name}={parameter.value}, " for parameter in tuning.assignments(trial.values)
    )
    return f"with parameters: {parameters}.  The trial's error message was: {tuning.last_error}"


def stopped_early(comparison: str) -> str:
    """Return the errorMessage of a trial's own job that was stopped early."""
    return f"Trial is stopped early by its tuning job: {comparison}."


def exceeded_running_time(limit_s: int) -> str:
    return f"Job was cancelled for exceeding the maximum allowed duration of {limit_s} seconds."


def exceeded_wait_time(limit_s: int) -> str:
    return f"Job was cancelled for exceeding the maximum allowed waiting time of {limit_s} seconds."


def exceeded_cost(limit: str) -> str:
    return f"Job was cancelled because its cost would exceed the maximum allowed cost of {limit}."
