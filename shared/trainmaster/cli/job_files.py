"""Job files on the user's machine: read, named and checked before anything is sent.

`submit`, `schedule`, `convert`, `doctor` and `simulate` read their job with this module.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from trainmaster.cli.output import problems_text
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.foreign.answer import Answer, ForeignFile
from trainmaster.jobspec.job_document import (
    read_document,
    with_id_from_file,
    with_job_id,
    with_time_in_job_id,
)
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.foreign_files import TITLES
from trainmaster.jobspec.reading.yaml_document import as_yaml

JOB_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")


def read_job(
    job: str, config: Path | None, region: str | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Return the job id that the command names, or None, and the content of the job file.

    `job` is a job file, a manifest of Kubeflow or JobSet, or a job id. `config`: the job file of a
    job id; None: options describe the job, whose content is empty. `region`: where the job of a
    manifest runs, if the manifest does not say so. A manifest is converted. Raises PermanentError
    if the file cannot be read or converted.
    """
    names_file = Path(job).is_file() or job.endswith(JOB_FILE_SUFFIXES)
    if not job:
        raise PermanentError(
            "no job is given: name a job file, or a folder with a command, as in"
            " `trainmaster submit --folder . -- python train.py`"
        )
    if names_file and config:
        raise PermanentError(
            f"two job files are given: {job} and --config {config}. Give one of them"
        )
    source = Path(job) if names_file else config
    if source is None:
        return job, {}
    try:
        document = read_document(source.read_bytes(), source.name, region)
    except FileNotFoundError:
        raise PermanentError(f"there is no file {source}") from None
    except ForeignFile as foreign:
        raise PermanentError(foreign_answer(source, foreign.answer)) from None
    except InvalidJob as invalid:
        raise PermanentError(f"{source} cannot be read:{problems_text(invalid)}") from None
    return (None if names_file else job), document


def foreign_answer(source: Path, answer: Answer) -> str:
    """Return what the task of another tool means, with its job file and what that leaves out."""
    job_file = indent(as_yaml(answer.job_file), "  ")
    return (
        f"{source} is {TITLES[answer.tool]}, and no job file. It means:\n\n{job_file}\n"
        f"`trainmaster convert {source} > job.yaml` writes this.{foreign_notes(answer)}"
    )


def foreign_notes(answer: Answer) -> str:
    """Return how to submit the job file of another tool's task, and what to do besides."""
    notes = "".join(f"\n  {note.field}: {note.text}" for note in answer.notes)
    besides = f" What it leaves out:{notes}" if notes else ""
    return f" Submit it by `{answer.command}`.{besides}"


def check_document(document: dict[str, Any], default_job_id: str | None = None) -> str:
    """Return the job's id. Raises PermanentError with every problem of the job file."""
    try:
        spec = accept(document, default_job_id=default_job_id)
    except InvalidJob as invalid:
        raise PermanentError(
            f"the job is not valid, and was not submitted:{problems_text(invalid)}"
        ) from None
    return spec.job_id or ""


def with_job_name(
    document: dict[str, Any], job_file: str, job_id: str | None = None
) -> dict[str, Any]:
    """Return the document with the id `job_id`, else its own, else one from the file's name.

    The id from a file's name has the time, too. `{time:FORMAT}` in an id is replaced by the current
    time. An id that is not text is left to `accept`, which refuses it.
    """
    named = with_job_id(document, job_id) if job_id else with_id_from_file(document, job_file)
    return with_time_in_job_id(named, datetime.now(UTC))
