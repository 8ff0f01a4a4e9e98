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
    named = with_id_from_file(document={}, file_name=folder.resolve().name) if job is None else job
    document = with_default_region(_read(named, region), region)
    document, _ = with_chosen_runtime(document, folder, command)
    refuse_folder(check_folder(document, folder, command))
    document = with_folder(document, folder, bucket, objects(), command)
    # Every program of the installation can read the upload, so its user sees what is in it.
    sys.stderr.write(f"each VM gets a copy of {folder}: {list_folder_files(folder).describe()}\n")
    return document


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
