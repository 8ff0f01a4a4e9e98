"""Recognise files of SkyPilot and dstack, which are no job files.

`jobspec/foreign` says which job file they mean. Sources: "SkyPilot YAML" in SkyPilot's
documentation, "Reference: task" in dstack's (November 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainmaster.jobspec.reading.json_limits import invalid

SKYPILOT: Final = "SkyPilot"
DSTACK: Final = "dstack"
TITLES: Final = {SKYPILOT: "a task of SkyPilot", DSTACK: "a configuration of dstack"}
_BESIDE_RUN: Final = ("resources", "setup", "num_nodes", "workdir", "file_mounts", "envs")
"""Fields of which a task of SkyPilot has at least one beside `run`."""
_TYPES: Final = ("task", "dev-environment", "service")
"""Values of `type` of dstack's configurations."""


def tool_of(document: Mapping[str, object]) -> str | None:
    """Return the tool whose file the document is; None: it may be a job file."""
    if isinstance(document.get("run"), str) and any(name in document for name in _BESIDE_RUN):
        return SKYPILOT
    if document.get("type") in _TYPES and isinstance(document.get("commands"), list):
        return DSTACK
    return None


def refuse_foreign_file(document: Mapping[str, object]) -> None:
    """Raise InvalidJob for a file of another tool."""
    tool = tool_of(document)
    if tool:
        raise invalid(
            f"this is {TITLES[tool]}, and no job file", "trainmaster convert task.yaml > job.yaml"
        )
