"""Remove what the previous job of a VM has left in its container engines.

    containers   whatever their restart policy, with their anonymous volumes
    volumes      else the next job's `--volume data:/data` would have the previous job's data
    networks     else the next job's `network create` would fail: the name is in use

`main.py` calls `remember_first_objects` for the first job of a VM that several jobs may use, one
after the other, and `remove_left_objects` when the agent of a later job starts there. What the
VM had before its first job stays, and so do container images and the caches of builds. Without a
record of what it had, a volume or a network may be its own: both stay, and the VM is replaced. The
engine of a local VM is that of the developer's machine: only containers of this VM are removed
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.agent.program.container_engine import CONTAINER, ContainerEngine, EngineError
from trainmaster.agent.setup.first_record import is_list_of_names, read_record, write_record
from trainmaster.agent.workspace import Workspace

FIRST_OBJECTS = "first-containers.json"
"""File with what the engines had before the VM's first job: names by engine and kind; null for an
engine that did not answer.
"""
SHIMS = frozenset(("containerd-shim", "conmon"))
"""Names of the processes that hold containers, also while their engine does not run, as the kernel
shortens them.
"""


def remember_first_objects(workspace: Workspace, engines: Sequence[ContainerEngine]) -> None:
    """Record what the engines have before the VM's first program."""
    file = workspace.work / FIRST_OBJECTS
    if file.exists():
        return
    found: dict[str, dict[str, list[str]] | None] = {}
    for engine in engines:
        try:
            found[engine.name] = engine.objects()
        except EngineError as error:
            found[engine.name] = None
            workspace.log(f"{engine.name} does not answer: {error}")
    write_record(file, found)


def remove_left_objects(
    workspace: Workspace, engines: Sequence[ContainerEngine], processes: Path = Path("/proc")
) -> tuple[int, list[str]]:
    """Remove what the last job has left in the engines. Return the number of containers among it,
    and in words what cannot be removed, or may be the last job's.
    """
    first = _read_first_objects(workspace)
    removed = 0
    findings: list[str] = []
    for engine in engines:
        # An engine that was not on the VM before its first job had nothing.
        known = first.get(engine.name, {}) if first is not None else None
        try:
            left = _new(engine.objects(), known)
            for kind, names in left.items():
                if known is not None or kind == CONTAINER:
                    engine.remove_objects(kind, names)
            removed += len(left[CONTAINER])
            findings += [
                _describe_left(kind, name, is_known=known is not None)
                for kind, names in _new(engine.objects(), known).items()
                for name in names
            ]
        except EngineError as error:
            had_answered = first is None or known is not None
            if _has_shims(processes):
                findings.append(f"containers may run that {engine.name} does not end: {error}")
            elif had_answered:
                findings.append(f"what {engine.name} has is not known: {error}")
    return removed, findings


def _new(
    objects: Mapping[str, Sequence[str]], first: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]]:
    """Return what the engine did not have before the first job, by kind; all if that is not
    known.
    """
    had = first or {}
    return {
        kind: [name for name in names if name not in had.get(kind, ())]
        for kind, names in objects.items()
    }


def _describe_left(kind: str, name: str, *, is_known: bool) -> str:
    """Return the finding about an object. `is_known`: whether it is the last job's."""
    if is_known:
        return f"the {kind} {name} of the last job cannot be removed"
    return f"it is not known whether the {kind} {name} is of the last job"


def _read_first_objects(workspace: Workspace) -> Mapping[str, Any] | None:
    """Return what `remember_first_objects` has stored; None: nothing is known."""
    stored = read_record(workspace.work / FIRST_OBJECTS)
    return stored if stored is not None and all(map(_is_whole, stored.values())) else None


def _is_whole(objects: object) -> bool:
    """Whether these may be an engine's names by kind, or null."""
    if objects is None:
        return True
    return isinstance(objects, dict) and all(map(is_list_of_names, objects.values()))


def _has_shims(processes: Path) -> bool:
    for command in processes.glob("[0-9]*/comm"):
        try:
            if command.read_text(encoding="utf-8", errors="replace").strip() in SHIMS:
                return True
        except OSError:
            continue  # the process has ended
    return False
