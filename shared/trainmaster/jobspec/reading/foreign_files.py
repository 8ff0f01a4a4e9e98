"""Task files of SkyPilot and dstack: they are no job files, and say which command means the same.

Sources: "Task YAML" in SkyPilot's documentation, "Reference: task" in dstack's (November 2026).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from trainmaster.jobspec.reading.json_limits import invalid

_SKYPILOT: Final = ("resources", "setup", "num_nodes", "workdir", "file_mounts", "envs")
"""Fields of which a task of SkyPilot has at least one beside `run`."""
_DSTACK: Final = ("task", "dev-environment", "service")
"""Values of `type` of dstack's configurations."""
_MACHINE: Final = "n1-standard-4"
_EXTRA_NODES_MAX: Final = 10_000


def refuse_foreign_file(document: Mapping[str, object]) -> None:
    """Raise InvalidJob for a file of SkyPilot or dstack, with the command that it means."""
    if isinstance(document.get("run"), str) and any(name in document for name in _SKYPILOT):
        folder = document.get("workdir")
        command = _command(
            str(document["run"]), folder if isinstance(folder, str) else ".", document, "num_nodes"
        )
        raise invalid("this is a task of SkyPilot, and no job file", command)
    if document.get("type") in _DSTACK and isinstance(document.get("commands"), list):
        lines = [str(line) for line in document["commands"]]  # type: ignore[attr-defined]
        command = _command("\n".join(lines), ".", document, "nodes")
        raise invalid("this is a configuration of dstack, and no job file", command)


def _command(script: str, folder: str, document: Mapping[str, object], nodes_field: str) -> str:
    """Return the command line. More than one line of a script belongs into a file."""
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    program = lines[0] if len(lines) == 1 else "bash run.sh"
    nodes = document.get(nodes_field)
    workers = nodes - 1 if isinstance(nodes, int) and 1 < nodes <= _EXTRA_NODES_MAX else 0
    machines = ""
    if workers:
        machines = (
            f" --scale-tier custom --master-machine-type {_MACHINE}"
            f" --worker-machine-type {_MACHINE} --worker-count {workers}"
        )
    note = "" if len(lines) == 1 else " (with its commands in run.sh)"
    setup = " and its packages in requirements.txt" if document.get("setup") else ""
    return f"trainmaster submit --folder {shlex.quote(folder)}{machines} -- {program}{note}{setup}"
