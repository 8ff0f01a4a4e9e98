"""Through which door a job came, from what identifies its submission: docs/interfaces.md section 2.

Whoever may publish to the topic `submit` says the source of a message; who came through the API is known for sure.
"""

from __future__ import annotations

from typing import Final

from shared.core.model.job import Job

_DOORS: Final = (
    ("gs://", "by the upload of {source}"),
    ("api:", "through the API"),
    ("cli:", "by trainmaster submit"),
    ("schedule:", "by the schedule {rest}"),
    ("", "as a message to the topic"),
)
"""How a submission's source begins → how it is said."""


def came(job: Job) -> str:
    """`through the API, by anna@example.com`."""
    trial = job.trial_of
    if trial is not None:
        tried = "".join(f" --{each.name} {each.value}" for each in trial.assigned)
        return f"by {trial.job_id}, as its trial {trial.number}:{tried}"
    prefix, words = next(each for each in _DOORS if job.submission.startswith(each[0]))
    said = words.format(source=job.submission.partition("#")[0], rest=job.submission.removeprefix(prefix))
    return f"{said}, by {job.submitted_by}" if job.submitted_by else said
