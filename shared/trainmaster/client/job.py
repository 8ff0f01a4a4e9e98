"""Jobs and trials as the client returns them, from the answers of both APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainmaster.core.model.origin import Substitution
from trainmaster.errors import PUBLIC

ENDED: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
_STATES: Final = {"PENDING": "PREPARING"}
"""State of Vertex AI's API, without its prefix → the job's state."""


class JobFailedError(Exception):
    """The job ended in another state than SUCCEEDED. The text has id, state and reason."""

    __module__ = PUBLIC


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a tuning job."""

    number: int
    parameters: Mapping[str, str]
    """Values of the hyperparameters, as text."""
    metric: float | None
    """Final value of the metric; None: the trial has not reported one."""
    state: str
    """In the words of the API that answered: RUNNING, or ACTIVE of Vertex AI."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when the API answered."""

    address: str
    """Path below the project: `jobs/digits_1` or `locations/us-central1/customJobs/17`."""
    state: str
    """QUEUED, PREPARING, RUNNING, SUCCEEDED, FAILED or CANCELLED."""
    error_message: str | None = None
    """Why the job ended, unless it SUCCEEDED."""
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The complete answer of the API."""

    @property
    def job_id(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Trials of a tuning job, in the API's order; empty for any other job."""
        output = self.document.get("trainingOutput", {})
        return tuple(map(_trial, output.get("trials", self.document.get("trials", ()))))


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job that would be created now."""

    job: Job
    """As it would be. Jobs of Vertex AI's format get another number when they are created."""
    notes: tuple[str, ...] = ()
    """What would be substituted, and what the job may lack although it is not refused."""


def job_of(document: Mapping[str, Any]) -> Job:
    """Return the job of an answer of either API."""
    if "jobId" in document:
        return Job(
            f"jobs/{document['jobId']}", document["state"], document.get("errorMessage"), document
        )
    _, _, *below_project = str(document["name"]).split("/")
    address = "/".join(below_project)
    state = str(document["state"]).removeprefix("JOB_STATE_").removeprefix("PIPELINE_STATE_")
    error = document.get("error")
    return Job(address, _STATES.get(state, state), error and error.get("message"), document)


def checked_job_of(document: Mapping[str, Any], notes: Sequence[str]) -> CheckedJob:
    """Return the job of an answer that creates nothing. `notes`: those of the client."""
    told = (
        Substitution(**substitution).text
        for substitution in document["trainmaster"]["substitutions"]
    )
    return CheckedJob(job_of(document), (*notes, *told))


def _trial(trial: Mapping[str, Any]) -> Trial:
    if "trialId" in trial:
        metric = trial.get("finalMetric", {}).get("objectiveValue")
        return Trial(
            int(trial["trialId"]),
            dict(trial.get("hyperparameters", {})),
            metric,
            trial.get("state", ""),
        )
    metrics = trial.get("finalMeasurement", {}).get("metrics", [])
    metric = metrics[0]["value"] if metrics else None
    parameters = {item["parameterId"]: str(item["value"]) for item in trial.get("parameters", ())}
    return Trial(int(trial["id"]), parameters, metric, trial["state"])
