"""The form that changes a job's labels: one `key=value` in a line."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.core.model.job import Job
from trainmaster.jobspec.fields.labels import read_labels
from trainmaster.jobspec.problems import InvalidJob, Problem


@dataclass(frozen=True, slots=True)
class LabelsForm:
    """The form, as it is shown."""

    job: Job
    text: str
    seen: int
    """Version of the labels that the user saw: the change is refused if there is a later one."""
    problems: tuple[Problem, ...] = ()


def new_labels_form(job: Job) -> LabelsForm:
    lines = (f"{label.key}={label.value}" for label in job.labels)
    return LabelsForm(job, "\n".join(lines), job.labels_version)


def parse_labels(text: str) -> dict[str, str]:
    """Return the labels of `key=value` lines. Raises InvalidJob with every problem."""
    labels: dict[str, object] = {}
    problems: list[Problem] = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        key, separator, value = (part.strip() for part in line.partition("="))
        if not separator:
            problems.append(Problem(f"labels.{line}", "is not key=value", example="team=vision"))
        elif key in labels:
            problems.append(Problem(f"labels.{key}", "is there twice", example="team=vision"))
        labels[key] = value
    if problems:
        raise InvalidJob(problems)
    return read_labels({"labels": labels})
