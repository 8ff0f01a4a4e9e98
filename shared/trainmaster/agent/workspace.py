"""Where the agent works: its folder, its environment and its console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.agent.program.family import Family
from trainmaster.agent.reporting.serial_console import Console


@dataclass(frozen=True)
class Workspace:
    """The folder, environment and console of the agent."""

    work: Path
    """The agent's folder, created by the startup script."""
    environ: Mapping[str, str]
    """The environment that the agent was started with."""
    console: Console
    family: Family | None = None
    """What the agent's programs have started; None if only marks tell."""

    def log(self, text: str) -> None:
        self.console.log(text)
