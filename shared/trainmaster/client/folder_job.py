"""The job of a folder that the Python client submits: checked, packed and uploaded here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainmaster.errors import InvalidJobError, PermanentError
from trainmaster.jobspec.job_document import (
    job_file_of,
    read_document,
    with_default_region,
    with_id_from_file,
    with_time_in_job_id,
)
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.wiring.folder_checks import check_folder, refuse_folder, with_chosen_runtime
from trainmaster.wiring.folders import list_folder_files, with_folder
from trainmaster.wiring.objects import objects
from trainmaster.wiring.staged_objects import StagedObjects


def job_of_folder(
    job: str | Path | Mapping[str, Any] | None,
    folder: Path,
    command: Sequence[str],
    region: str | None,
    bucket: str,
) -> dict[str, Any]:
    """Return the job that runs the command in a copy of the folder, which is in the bucket then.

    Writes to standard error how many files and bytes that are.

    `job`: None: one machine, with the folder's name as its job id. Raises InvalidJobError and
    PermanentError.
    """
    document, _ = _judged(job, folder, command, region)
    document = with_folder(document, folder, bucket, objects(), command)
    # Every program of the installation can read the upload, so its user sees what is in it.
    sys.stderr.write(f"each VM gets a copy of {folder}: {list_folder_files(folder).describe()}\n")
    return document


def checked_job_of_folder(
    job: str | Path | Mapping[str, Any] | None,
    folder: Path,
    command: Sequence[str],
    region: str | None,
    bucket: str,
) -> tuple[dict[str, Any], list[str]]:
    """Return the same job, and notes about the folder, without an upload.

    The job names the folder's content by its hash, so that the API does not look for it.
    """
    document, notes = _judged(job, folder, command, region)
    staged = StagedObjects()
    return with_folder(document, folder, bucket, staged, command), notes


def _judged(
    job: str | Path | Mapping[str, Any] | None,
    folder: Path,
    command: Sequence[str],
    region: str | None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the job with its runtime, and what may fail. Raises PermanentError for a folder that
    must fail.
    """
    named = with_id_from_file(document={}, file_name=folder.resolve().name) if job is None else job
    document = with_default_region(_read(named, region), region)
    document, choice = with_chosen_runtime(document, folder, command)
    findings = check_folder(document, folder, command)
    refuse_folder(findings)
    return document, [*filter(None, [choice]), *map(str, findings)]


def _read(job: str | Path | Mapping[str, Any], region: str | None) -> dict[str, Any]:
    """Return the job file of a file or of a mapping, with the time in its job id."""
    try:
        if isinstance(job, Mapping):
            document = job_file_of(job, region)
        else:
            file = Path(job)
            document = with_id_from_file(
                read_document(file.read_bytes(), file.name, region), file.name
            )
        return with_time_in_job_id(document, datetime.now(UTC))
    except FileNotFoundError:
        raise PermanentError(f"there is no file {job}") from None
    except InvalidJob as invalid:
        source = "job" if isinstance(job, Mapping) else job
        raise InvalidJobError(f"{source}: {invalid}") from None
