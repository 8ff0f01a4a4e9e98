"""Objects uploaded to the bucket, and which of them are job files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

PREFIX: Final = "jobs/"
"""Folder of job files."""
SUFFIXES: Final = (".yaml", ".yml", ".json")
ERROR_SUFFIX: Final = ".error.json"
"""Suffix of the object that lists the problems of a job file."""


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
    def is_hidden(self) -> bool:
        """Whether the object, or a folder of it, has a hidden name, as the copies have that editors
        and notebooks keep: `.ipynb_checkpoints/digits-checkpoint.yaml`, `._digits.yaml`.
        """
        return any(part.startswith(".") for part in self.name.split("/"))

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
