"""The document that a plan was resolved from, where programs or clients still see it: its format,
its built-in algorithm, and what the job got in place of something that it requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Substitution:
    """Something the spec requests that no longer exists, and what the job gets instead.

    `describe` shows it.

    It is a note about the requested value if the replacement is the same.
    """

    field: str
    """Field of the spec, in its own spelling."""
    requested: str
    replacement: str
    reason: str

    @property
    def text(self) -> str:
        """The substitution, or the note, in one sentence."""
        change = "" if self.replacement == self.requested else f" is replaced by {self.replacement}"
        return f"{self.field}: {self.requested}{change} ({self.reason.rstrip('.')})."


@dataclass(frozen=True, slots=True)
class BuiltInAlgorithm:
    """The built-in algorithm that a job runs. Clients that deploy the model read these values."""

    name: str
    framework: str
    """`TENSORFLOW` or `XGBOOST`."""
    runtime_version: str
    python_version: str


class Dialect(StrEnum):
    """Job format of the spec. It decides which environment variables the program gets."""

    AI_PLATFORM = "ai_platform"  # TrainingInput: CLOUD_ML_*, --job-dir
    VERTEX = "vertex"  # CustomJobSpec: AIP_*, worker pools in CLUSTER_SPEC


@dataclass(frozen=True, slots=True)
class Origin:
    """The document that the plan was resolved from, where programs or clients still see it."""

    dialect: Dialect = Dialect.AI_PLATFORM
    output_directory: str | None = None
    """baseOutputDirectory of Vertex AI's format."""
    algorithm: BuiltInAlgorithm | None = None
    """The built-in algorithm that the job runs; None: a program of the user."""
    substitutions: tuple[Substitution, ...] = ()
