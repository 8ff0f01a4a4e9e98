"""Where the event files of a job are, and which run of TensorBoard each of them belongs to.

format            folder                            run
AI Platform       jobDir/…                          JOB/…
Vertex AI         baseOutputDirectory/logs/…        JOB/…          (AIP_TENSORBOARD_LOG_DIR)
trial N           jobDir/N/…                        JOB/trial-N/…
trial N, Vertex   baseOutputDirectory/N/logs/…      JOB/trial-N/…
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainmaster.core.cluster.environment import AIP_DIRECTORIES
from trainmaster.core.model.job import Job
from trainmaster.core.model.origin import Dialect
from trainmaster.errors import PermanentError

LOGS: Final = AIP_DIRECTORIES["AIP_TENSORBOARD_LOG_DIR"]
_NAMED: Final = re.compile(r"(?:(?P<name>[\w.-]+)=)?(?P<uri>gs://[^/]+(?:/.*)?)")


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A folder of Cloud Storage with event files."""

    name: str
    """First part of the runs' names."""
    uri: str
    """`gs://BUCKET/FOLDER/`, with the slash at its end."""
    has_trials: bool = False
    """Whether its subfolders are those of trials."""
    logs: str = ""
    """Folder of the event files within `uri`, or within the folder of each trial.

    With a slash at its end, or empty.
    """

    def local_path(self, path: str) -> str | None:
        """Return the path below the mirror of an object at `path` below `uri`.

        None: it is not in the logs.

        Object names are chosen by programs: a path never leaves the mirror.
        """
        run = self.name
        if self.has_trials:
            trial, _, path = path.partition("/")
            if not trial.isdecimal():
                return None
            run += f"/trial-{trial}"
        if not path.startswith(self.logs):
            return None
        parts = path.removeprefix(self.logs).split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            return None
        return "/".join([run, *parts])


def folder_of_job(job: Job) -> LogFolder:
    """Return the folder of a job, or of all trials of a tuning job.

    Raises PermanentError if the job has none.
    """
    is_vertex = job.plan.origin.dialect is Dialect.VERTEX
    base = job.plan.origin.output_directory if is_vertex else job.plan.program.job_dir
    if not base:
        field = "baseOutputDirectory" if is_vertex else "jobDir"
        raise PermanentError(
            f"{job.job_id} has no {field}. If its program writes event files elsewhere, name the"
            " folder: --logdir gs://BUCKET/FOLDER"
        )
    logs = f"{LOGS}/" if is_vertex else ""
    uri = f"{base.rstrip('/')}/"
    if job.tuning is not None:
        return LogFolder(job.job_id, uri, has_trials=True, logs=logs)
    return LogFolder(job.job_id, f"{uri}{logs}")


def folder_of_option(text: str) -> LogFolder:
    """Return the folder of `gs://BUCKET/FOLDER` or `NAME=gs://BUCKET/FOLDER`.

    Raises PermanentError.
    """
    match = _NAMED.fullmatch(text)
    if match is None:
        raise PermanentError(
            f"--logdir {text}: must be gs://BUCKET/FOLDER or NAME=gs://BUCKET/FOLDER"
        )
    uri = f"{match['uri'].rstrip('/')}/"
    return LogFolder(match["name"] or uri.rstrip("/").rpartition("/")[2], uri)
