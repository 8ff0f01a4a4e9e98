"""How a job was submitted and by whom, derived from the source of its submission:
docs/interfaces.md section 2.

The publisher of a message to the topic `submit` may state any source, also one that names a person.
Only the origin of a job from the API is verified: `Job.through_api`.
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.model.owner import owner

_ORIGINS: Final = (
    ("gs://", "by the upload of {source}"),
    ("cli:", "by trainmaster submit"),
    ("schedule:", "by the schedule {name}"),
    ("console:", "in the console"),
    ("", "as a message to the topic"),
)
"""Prefix of a submission's source, and its description."""


def describe_origin(job: Job) -> str:
    """Return how the job was submitted: `through the API, by anna@example.com`."""
    trial = job.trial_of
    if trial is not None:
        values = "".join(f" --{parameter.name} {parameter.value}" for parameter in trial.assigned)
        return f"by {trial.job_id}, as its trial {trial.number}:{values}"
    by = f", by {owner(job).words}" if owner(job).user else ""
    if job.through_api:
        return f"through the API{by}"
    prefix, way = next(origin for origin in _ORIGINS if job.submission.startswith(origin[0]))
    name = job.submission.removeprefix(prefix).partition("/")[0]
    return way.format(source=job.submission.partition("#")[0], name=name) + by
