"""The Python client, for users' programs and `trainmaster mcp`: it calls the function `api`, and
reads logs from Cloud Logging.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trainmaster.client.explanation import Explanation, explanation_of
from trainmaster.client.job import CheckedJob, Job, JobFailedError, checked_job_of, job_of
from trainmaster.errors import InvalidJobError, PermanentError, TemporaryError
from trainmaster.gcp.log_entries import LogEntries
from trainmaster.gcp.tools.jobs_api import JobsApi, NotFoundError
from trainmaster.presentation.log_reader import LogLine, LogReader
from trainmaster.wiring.installation import (
    API,
    BUCKET,
    INSTALLATION,
    PROJECT,
    REGION,
    known_variables,
)

LOGGING: Final = "TRAINMASTER_LOGGING_ENDPOINT"
"""Environment variable with the address of Cloud Logging on a local stack."""
_ADDRESS: Final = re.compile(r"(jobs|locations/[a-z0-9-]+/[A-Za-z]+)/\w+")
"""Path of a job below its project, in the format of AI Platform Training or of Vertex AI."""
POLL_S: Final = 10.0
"""Time between two reads of a job or its log."""
LATE_LINES_S: Final = 5.0
"""How long after a job's end its VMs may still write log lines."""


class Client:
    """A client of one installation.

    Calls raise PermanentError with the API's reason, or TemporaryError after retries.

    `project`: that of the installation; default: TRAINMASTER_PROJECT. `endpoint`: address of the
    function `api`; default: TRAINMASTER_API_ENDPOINT. `trainmaster local env` prints both, and
    `trainmaster init` remembers them. Credentials are the application default credentials, or the
    token of CLOUDSDK_AUTH_ACCESS_TOKEN_FILE.
    """

    def __init__(
        self, project: str | None = None, endpoint: str | None = None, poll_s: float = POLL_S
    ) -> None:
        self._known = known_variables(project)
        self.project = self._required(PROJECT, "project")
        self._api = JobsApi(self.project, endpoint or self._required(API, "endpoint"))
        self._poll_s = poll_s

    def submit(
        self,
        job: str | Path | Mapping[str, Any] | None = None,
        region: str | None = None,
        *,
        folder: str | Path | None = None,
        command: Sequence[str] = (),
    ) -> Job:
        """Create a job and return it.

        `job`: path of a job file or of a manifest of Kubeflow, or its content.

        `region`: where a job runs that does not say so; default: TRAINMASTER_REGION. `folder`: the
        job runs `command` in a copy of it; without a `job`, on one machine. A repeated call creates
        another job, or fails if the job id was used. Raises InvalidJobError with every problem of
        the job.
        """
        region = region or self._known.get(REGION)
        if folder is not None:
            # Most programs submit no folder, and need no checks of one.
            from trainmaster.client.folder_job import job_of_folder

            bucket = self._known.get(BUCKET, "")
            job = job_of_folder(job, Path(folder), command, region, bucket)
        return job_of(self._send(job, region))

    def check(
        self,
        job: str | Path | Mapping[str, Any] | None = None,
        region: str | None = None,
        *,
        folder: str | Path | None = None,
        command: Sequence[str] = (),
    ) -> CheckedJob:
        """Return what `submit` would create, and notes about it. Nothing is created or uploaded.

        Parameters and errors are those of `submit`.
        """
        region = region or self._known.get(REGION)
        notes: list[str] = []
        if folder is not None:
            from trainmaster.client.folder_job import checked_job_of_folder

            job, notes = checked_job_of_folder(
                job, Path(folder), command, region, self._known.get(BUCKET, "")
            )
        answer = self._send(job, region, {"validateOnly": "true"})
        return checked_job_of(answer, notes)

    def _send(
        self,
        job: str | Path | Mapping[str, Any] | None,
        region: str | None,
        query: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Return the API's answer to a job."""
        if job is None:
            raise PermanentError(
                "job: is required, unless there is a folder: submit(folder='.', command=[…])"
            )
        file_name, document = _text_of(job)
        body = {
            "document": document,
            "fileName": file_name,
            "region": region or "",
            "time": datetime.now(UTC).isoformat(),
        }
        # One id for all tries of this call, so that none creates a second job.
        invocation = str(uuid.uuid4())
        return self._api.call("POST", "jobs:submit", body, invocation, query)

    def describe(self, job: Job | str) -> Job:
        """Return the job as it is now.

        `job`: a job, a job id, or the address of a job of Vertex AI's format.
        """
        return job_of(self._of_job("GET", job))

    def wait(self, job: Job | str, timeout_s: float | None = None) -> Job:
        """Return the job when it has SUCCEEDED.

        Raises JobFailedError if it ends otherwise, and TimeoutError if it has not ended after
        `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        current = self.describe(job)
        while not current.has_ended:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{current.job_id} is {current.state} after {timeout_s} s")
            time.sleep(self._poll_s)
            current = self.describe(job)
        if current.state != "SUCCEEDED":
            raise JobFailedError(f"{current.job_id}: {current.state}: {current.error_message}")
        return current

    def why(self, job: Job | str) -> Explanation:
        """Return what was decided about the job, by which rule, and what comes next."""
        return explanation_of(self._of_job("GET", job, ":explain"))

    def cancel(self, job: Job | str) -> None:
        """Cancel the job. A job that has ended stays as it is."""
        self._of_job("POST", job, ":cancel", {})

    def _of_job(
        self, method: str, job: Job | str, verb: str = "", body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Return the API's answer to a call about one job. `verb`: the end of its address.

        The error about a job that does not exist names the one that was probably meant.
        """
        address = self._address(job)
        try:
            return self._api.call(method, f"{address}{verb}", body)
        except NotFoundError as error:
            similar = self._similar_job(address)
            hint = f"; did you mean {similar}?" if similar else ""
            raise PermanentError(f"{str(error).rstrip('.')}{hint}") from None

    def _similar_job(self, address: str) -> str:
        """Return the id of a recent job that is similar to an address; empty: there is none, or
        the caller may not list jobs.
        """
        # Most programs name jobs that exist.
        from trainmaster.presentation.similar_ids import JOBS_READ, nearest_id

        try:
            answer = self._api.call("GET", "jobs", query={"pageSize": str(JOBS_READ)})
        except (PermanentError, TemporaryError):
            return ""
        return nearest_id(address, [job["jobId"] for job in answer.get("jobs", ())])

    def _address(self, job: Job | str) -> str:
        """Return the path below the project. Raises PermanentError for another project's job."""
        if isinstance(job, Job):
            return job.address
        address = job if "/" in job else f"jobs/{job}"
        if address.startswith("projects/"):
            project, _, address = address.removeprefix("projects/").partition("/")
            if project != self.project:
                raise PermanentError(
                    f"job: {job!r} is a job of the project {project}, and this client works with"
                    f" {self.project}"
                )
        if not _ADDRESS.fullmatch(address):
            raise PermanentError(
                f"job: {job!r} is no job id, and no address such as"
                " locations/us-central1/customJobs/17"
            )
        return address

    def logs(
        self, job: Job | str, *, follow: bool = False, since: datetime | None = None
    ) -> Iterator[LogLine]:
        """Yield the lines of a job's log.

        `since`: a time with its zone, from which on lines are read; default: all lines. `follow`:
        until the job has ended and no more lines arrive.
        """
        current = self.describe(job)
        begin = since.astimezone(UTC).isoformat() if since else current.document["createTime"]
        ended_at: float | None = None
        with closing(
            LogEntries(self.project, os.environ.get(LOGGING, ""), self._known.get(INSTALLATION))
        ) as entries:
            reader = LogReader(entries.page, current.job_id, [f'timestamp>="{begin}"'])
            while True:
                if follow and ended_at is None and self.describe(job).has_ended:
                    ended_at = time.monotonic()
                has_lines = False
                is_late = ended_at is not None and time.monotonic() - ended_at > LATE_LINES_S
                for lines in reader.read_new(is_followed=follow and not is_late):
                    has_lines = True
                    yield from lines
                is_complete = is_late and not has_lines
                if is_complete or not follow:
                    return
                time.sleep(min(self._poll_s, LATE_LINES_S))

    def _required(self, variable: str, parameter: str) -> str:
        if variable in self._known:
            return self._known[variable]
        raise PermanentError(
            f"{parameter}: is required: Client({parameter}=…), {variable}, or `trainmaster init`"
        )


def _text_of(job: str | Path | Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the job's file, and its text; a mapping has no name."""
    try:
        if isinstance(job, Mapping):
            return "", json.dumps(dict(job), allow_nan=False)
        file = Path(job)
        return file.name, file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PermanentError(f"there is no file {job}") from None
    except UnicodeDecodeError as error:
        raise InvalidJobError(f"{job}: is not UTF-8 text: {error.reason}") from None
    except (TypeError, ValueError) as error:
        raise InvalidJobError(f"job: is not JSON: {error}") from None
