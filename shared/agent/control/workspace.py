"""Where this agent works: its folder, the environment it was started with, and its console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shared.agent.reporting.serial_console import Console


@dataclass(frozen=True)
class Place:
    work: Path
    environ: Mapping[str, str]
    console: Console

    def say(self, text: str) -> None:
        self.console.say(text)
