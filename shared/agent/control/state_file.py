"""What outlives the agent: one small file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from shared.agent.control.vm_config import Directive, Key

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


@dataclass
class State:
    """What the agent must not forget when it or the VM dies. One small file, replaced atomically."""

    instance_id: str
    setup_done: bool = False
    started: Key | None = None  # the last incarnation begun, or used up by a failed setup
    closed: bool = True  # nothing is left to tell about it
    exit: dict[str, Any] | None = None  # how it ended, where that is known and not yet accepted
    desired: Directive | None = None
    announced: list[str] = field(default_factory=list)  # maintenance causes that were accepted

    @staticmethod
    def load(path: Path, instance_id: str) -> State:
        """Empty for another VM's file, as a disk may outlive its VM, and for one that cannot be read."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["instance_id"] != instance_id:
                return State(instance_id)
            desired = stored["desired"]
            return State(
                instance_id,
                setup_done=stored["setup_done"],
                started=Key(*stored["started"]) if stored["started"] else None,
                closed=stored["closed"],
                exit=stored["exit"],
                desired=Directive(Key(*desired["key"]), desired["action"], tuple(desired.get("slices", ())))
                if desired
                else None,
                announced=list(stored["announced"]),
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return State(instance_id)

    def save(self, path: Path) -> None:
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
