"""The tuning job that another one resumes. Vertex AI has no field for it; ours is in `trainmaster`."""

from __future__ import annotations

from trainmaster.core.model.job import CUSTOM_JOB_PREFIX
from trainmaster.jobspec.fields.job_id import JOB_ID
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import EXTENSION

EXTENSION_PATH: FieldPath = (EXTENSION, "resumePreviousJobId")


def resolve_resumed_job(job_id: str | None, path: FieldPath, problems: Problems) -> str | None:
    """Return the stored id of the tuning job that is resumed; None if none is named.

    Jobs that Vertex AI's API created are named by their number, or by the resource name that ends with it.
    """
    if job_id is None:
        return None
    name = job_id.rpartition("/")[2]
    if name.isdecimal():
        return CUSTOM_JOB_PREFIX + name
    if not JOB_ID.fullmatch(name):
        problems.add(path, f"must be the id of a tuning job, not {quoted(job_id)}", "digits_tuning_1")
    return name


def refuse_resumed_job(extension: Extension, instead: str, problems: Problems) -> None:
    """Report `trainmaster.resumePreviousJobId` in a document that is not a HyperparameterTuningJob."""
    if extension.resume_previous_job_id is not None:
        problem = f"can be set for a HyperparameterTuningJob only; {instead}"
        problems.add_text(EXTENSION_PATH, problem, "leave it out")
