"""How a job was submitted and by whom, in words for users: `trainmaster why`, the job's page.

The words are derived from `Job.submission`, which identifies a submission by its source and a key:
`gs://BUCKET/jobs/digits.yaml#GENERATION`, `cli:KEY/USER`, `schedule:NAME/USER`. The forms are in
docs/interfaces.md, section 2. The publisher of a message to the topic `submit` may state any
source, also one that names a person. Only that of a job from the API is verified
(`Job.through_api`).
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.model.owner import owner

_SOURCES: Final = (
    ("gs://", "by the upload of {source}"),
    ("cli:", "by trainmaster submit"),
    ("schedule:", "by the schedule {name}"),
    ("console:", "in the console"),
    ("", "as a message to the topic"),
)
"""Prefix of `Job.submission`, and its description; the last one fits every submission."""


def describe_submission(job: Job) -> str:
    """Return how the job was submitted: `through the API, by anna@example.com`.

    It completes the sentence "The job was submitted …".
    """
    trial = job.trial_of
    if trial is not None:
        values = "".join(f" --{parameter.name} {parameter.value}" for parameter in trial.assigned)
        return f"by {trial.job_id}, as its trial {trial.number}:{values}"
    by = f", by {owner(job).words}" if owner(job).user else ""
    if job.through_api:
        return f"through the API{by}"
    prefix, way = next(
        (prefix, way) for prefix, way in _SOURCES if job.submission.startswith(prefix)
    )
    uploaded_file = job.submission.partition("#")[0]
    name = job.submission.removeprefix(prefix).partition("/")[0]
    return way.format(source=uploaded_file, name=name) + by
