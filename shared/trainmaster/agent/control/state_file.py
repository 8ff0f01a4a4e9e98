"""The agent's state on disk: one small file that survives crashes of the agent and reboots of the
VM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective


@dataclass
class StoredState:
    """The contents of the state file."""

    instance_id: str
    """The VM that wrote it: a disk may outlive its VM."""
    setup_done: bool = False
    """The job's packages are installed."""
    started: IncarnationKey | None = None
    """The last incarnation that was started, or that a failed setup used up."""
    closed: bool = True
    """A directive ended that incarnation while it ran, so that its end is no evidence of anything.
    """
    exit: dict[str, Any] | None = None
    """How that incarnation ended, unless it runs or a directive ended it."""
    ready: IncarnationKey | None = None
    """The last incarnation for which Pub/Sub accepted a vm-ready under `hold`."""
    desired: ReceivedDirective | None = None
    """The latest directive."""
    announced: list[str] = field(default_factory=list)
    """Causes of maintenance events that were accepted."""

    @staticmethod
    def load(path: Path, instance_id: str) -> StoredState:
        """Return an empty state if the file is missing, unreadable, or of another VM."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["instance_id"] != instance_id:
                return StoredState(instance_id)
            for name in ("started", "ready"):
                if stored.get(name) is not None:
                    stored[name] = IncarnationKey(*stored[name])
            if stored["desired"] is not None:
                stored["desired"] = _read_directive(stored["desired"])
            return StoredState(**stored)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return StoredState(instance_id)

    def save(self, path: Path) -> None:
        """Replace the file atomically. Raises OSError."""
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


def _read_directive(stored: Mapping[str, Any]) -> ReceivedDirective:
    """Return the directive with the types that JSON does not keep."""
    fields = {
        **stored,
        "key": IncarnationKey(*stored["key"]),
        "slices": tuple(stored.get("slices", ())),
        "without": tuple(stored.get("without", ())),
    }
    return ReceivedDirective(**fields)
