"""The problem of a job id that is missing or not legal."""

from __future__ import annotations

from trainmaster.jobspec.fields.job_id import JOB_ID, JOB_ID_CHARS_MAX, nearest_job_id
from trainmaster.jobspec.problems import Problems, quoted
from trainmaster.jobspec.reading.document_kinds import example_at


def check_job_id(job_id: str | None, problems: Problems) -> None:
    """Add a problem if there is no id, or if it is not legal."""
    if job_id is None:
        problems.add(("jobId",), "is required", example=example_at(("jobId",)))
    elif not JOB_ID.fullmatch(job_id):
        rule = (
            "must have letters, digits and underscores only, a letter first, at most"
            f" {JOB_ID_CHARS_MAX} characters"
        )
        problems.add(("jobId",), f"{rule}, not {quoted(job_id)}", example=nearest_job_id(job_id))
