"""Read a task of another tool, and check that the job file of its answer is accepted."""

from __future__ import annotations

from typing import Any

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.foreign.answer import Answer, answer_of
from trainmaster.jobspec.reading.foreign_files import tool_of
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.wiring.folders import job_of_folder


def answer_to(text: str) -> Answer:
    """Return the answer to a task file, which has the job file that the task means."""
    document = parse_document(text.encode(), "task.yaml")
    tool = tool_of(document)
    assert tool, "the file is not recognised"
    answer = answer_of(tool, document)
    accept(_submitted(answer.job_file), default_job_id=None)
    return answer


def _submitted(job_file: dict[str, Any]) -> dict[str, Any]:
    """Return the job file as `submit --folder` completes it, in the region of the installation."""
    job = {"jobId": "task_1", **{name: job_file[name] for name in job_file if name != "jobId"}}
    training = {"region": "us-central1", **job["trainingInput"]}
    if "containerCommand" in training.get("masterConfig", {}):
        return {**job, "trainingInput": training}
    return job_of_folder({**job, "trainingInput": training}, training["args"])


def notes_of(text: str) -> dict[str, str]:
    """Return what the answer says about fields of the task that the job file lacks, by field."""
    return {note.field: note.text for note in answer_to(text).notes}
