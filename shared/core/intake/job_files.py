"""An object that was uploaded, and whether it is a job file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

PREFIX: Final = "jobs/"
SUFFIXES: Final = (".yaml", ".yml", ".json")
ERROR_SUFFIX: Final = ".error.json"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """One finalized object. `generation` is Cloud Storage's number of this very content of it, `created_at` when that
    was stored, where the notification says so."""

    bucket: str
    name: str
    generation: int
    created_at: datetime | None = None

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/{self.name}"

    @property
    def is_job_file(self) -> bool:
        name = self.name
        return name.startswith(PREFIX) and name.endswith(SUFFIXES) and not name.endswith(ERROR_SUFFIX)
