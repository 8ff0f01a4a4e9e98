"""The service's own words, which clients match on, with the cause added. Source: the service's documented messages."""

from __future__ import annotations

import signal
from typing import Final
from urllib.parse import quote

from shared.core.events import ExitCause, ReplicaExited
from shared.core.model.job import public_id
from shared.core.model.tuning import Trial, TrialState, Tuning

CONSOLE_LOGS: Final = "https://console.cloud.google.com/logs/viewer"
CANCELLED_BY_USER: Final = "Job is cancelled by the user"
INTERNAL_ERROR: Final = "Internal error occurred for the current attempt"
JOB_EXISTS: Final = "Field: job.job_id Error: A job with this id already exists."


def status_of(event: ReplicaExited) -> str:
    """`1`, or `9(SIGKILL)` as the service wrote signals."""
    if event.signal is None:
        return str(event.exit_status if event.exit_status is not None else "unknown")
    try:
        return f"{event.signal}({signal.Signals(event.signal).name})"
    except ValueError:
        return str(event.signal)


def how_it_ended(event: ReplicaExited) -> str:
    """The end of a sentence that begins with the replica's name."""
    if event.cause is ExitCause.INSTALL:
        return "could not install its packages"
    if event.cause is ExitCause.VM_RESTARTED:
        return "was cut off once more by a restart of its VM"
    if event.out_of_memory:
        return f"ran out of memory ({status_of(event)})"
    if event.signal is not None:
        return f"was ended by signal {status_of(event)}"
    error = f" ({event.error.type})" if event.error else ""
    return f"exited with status {status_of(event)}{error}"


def failed(event: ReplicaExited) -> str:
    """The errorMessage of a job that this exit ended."""
    who = f"The replica {event.subject.replica_id.words}"
    if event.out_of_memory:
        head = f"{who} ran out-of-memory and exited with a non-zero status of {status_of(event)}."
    elif event.cause is ExitCause.INSTALL:
        head = f"{who} could not install its packages (status {status_of(event)})."
    elif event.cause is ExitCause.VM_RESTARTED:
        head = f"{who} was cut off by restarts of its VM."
    else:
        head = f"{who} exited with a non-zero status of {status_of(event)}."
    return f"{head} \n{event.tail.strip()}" if event.tail.strip() else head


def with_log_link(message: str, project: str, job_id: str) -> str:
    """What a job failed of, and where its log is, as the service ended every such message."""
    job_id = public_id(job_id)
    of_job = quote(f'resource.type="ml_job"\nresource.labels.job_id="{job_id}"', safe="")
    address = f"{CONSOLE_LOGS}?project={project}&resource=ml_job%2Fjob_id%2F{job_id}&advancedFilter={of_job}"
    return f"{message}\n\nTo find out more about why your job exited please check the logs: {address}"


def exhausted(asked: str, said: str) -> str:
    return f"The job was stopped after too many retries: no resources for {asked} in its region. {said}."


def internal_error(cause: str) -> str:
    return f"{INTERNAL_ERROR}: {cause}"


def flags(tuning: Tuning, values: tuple[str, ...]) -> str:
    """`--learning-rate 0.01 --optimizer adam`."""
    return " ".join(f"--{each.name} {each.value}" for each in tuning.assigned(values))


def too_many_trials_failed(tuning: Tuning, last: Trial) -> str:
    """Source: the service's message, gaps and all, as users quoted it."""
    failed = len(tuning.of_state(TrialState.FAILED))
    return (
        f"Hyperparameter Tuning Trial #{last.number} failed. {failed} total hyperparameter trial failures were seen, "
        f"out of {len(tuning.trials)} trials attempted which reaches the user-specified limit of {tuning.max_failed}."
        f"The last trial to fail was #{last.number}, {_with_error(tuning, last)}"
    )


def trial_failed_first(tuning: Tuning, last: Trial) -> str:
    """In the form of the message above."""
    return (
        f"Hyperparameter Tuning Trial #{last.number} failed before any other trial succeeded; it had run "
        f"{_with_error(tuning, last)}"
    )


def no_trial_succeeded(tuning: Tuning, last: Trial | None) -> str:
    head = f"No hyperparameter tuning trial succeeded, out of {len(tuning.trials)} trials attempted."
    return f"{head} The last trial to fail was #{last.number}, {_with_error(tuning, last)}" if last else head


def _with_error(tuning: Tuning, trial: Trial) -> str:
    parameters = "".join(f"{each.name}={each.value}, " for each in tuning.assigned(trial.values))
    return f"with parameters: {parameters}.  The trial's error message was: {tuning.last_error}"


def exceeded_running_time(limit_s: int) -> str:
    return f"Job was cancelled for exceeding the maximum allowed duration of {limit_s} seconds."


def exceeded_wait_time(limit_s: int) -> str:
    return f"Job was cancelled for exceeding the maximum allowed waiting time of {limit_s} seconds."
