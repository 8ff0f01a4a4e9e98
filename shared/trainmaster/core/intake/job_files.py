"""Objects uploaded to the bucket, and which of them are job files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

PREFIX: Final = "jobs/"
"""Folder of job files."""
SUFFIXES: Final = (".yaml", ".yml", ".json")
_COPY_PREFIXES: Final = (".", "#", "~$", "__MACOSX")
ERROR_SUFFIX: Final = ".error.json"
"""Suffix of the object that lists the problems of a job file."""
_NAME_BYTES_MAX: Final = 1024
"""Source: Cloud Storage, object naming."""


@dataclass(frozen=True, slots=True)
class UploadedObject:
    """An object that was written to the bucket."""

    bucket: str
    name: str
    generation: int
    """Cloud Storage's number of this content of the object."""
    created_at: datetime | None = None
    """When this content was written, if the notification contains it."""

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/{self.name}"

    @property
    def problems_uri(self) -> str:
        """Address of the object that lists the problems of this job file.

        The longest names are cut to make room for the suffix.
        """
        longest = _NAME_BYTES_MAX - len(ERROR_SUFFIX)
        name = self.name.encode()[:longest].decode(errors="ignore")
        return f"gs://{self.bucket}/{name}{ERROR_SUFFIX}"

    @property
    def is_hidden(self) -> bool:
        """Whether the object, or a folder of it, has the name of a copy that an editor, a notebook
        or an archive keeps: `.ipynb_checkpoints/digits-checkpoint.yaml`, `._digits.yaml`,
        `digits.yaml~`, `#digits.yaml#`, `~$digits.yaml`.
        """
        parts = self.name.split("/")
        return any(part.startswith(_COPY_PREFIXES) or part.endswith("~") for part in parts)

    @property
    def is_job_file(self) -> bool:
        name = self.name.lower()
        is_in_folder = name.startswith(PREFIX) and not self.is_hidden
        return is_in_folder and name.endswith(SUFFIXES) and not name.endswith(ERROR_SUFFIX)

    @property
    def is_misnamed(self) -> bool:
        """Whether the object is in the folder of job files, but has another suffix.

        Objects in its subfolders are output of jobs.
        """
        folder, _, name = self.name.rpartition("/")
        is_direct = f"{folder}/" == PREFIX and bool(name) and not self.is_hidden
        return is_direct and not name.lower().endswith(SUFFIXES)
