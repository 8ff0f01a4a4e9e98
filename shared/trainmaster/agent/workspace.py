"""Where the agent works: its folder, its environment and its console."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import AnyStr, Protocol

from trainmaster.agent.reporting.serial_console import Console

EMULATED_VM = "TRAINMASTER_EMULATED_VM"
"""Variable in the environment of all processes of a local VM.

A local VM is one of the local stack: it shares the disk and the services of the developer's
machine.
"""


class Family(Protocol):
    """The processes that the agent's programs have started (`program.family`)."""

    def start(self, start: Callable[[], Popen[AnyStr]]) -> Popen[AnyStr]:
        """Start a process in a session of its own. Its status is left to the caller."""
        ...

    def started(self) -> list[int]:
        """Return the running processes of programs, each before its children."""
        ...


@dataclass(frozen=True)
class Workspace:
    """The folder, environment and console of the agent."""

    work: Path
    """The agent's folder, created by the startup script."""
    environ: Mapping[str, str]
    """The environment that the agent was started with."""
    console: Console
    family: Family | None = None
    """The processes that the agent's programs have started; None: only their marks identify them.
    """

    def log(self, text: str) -> None:
        """Write one line of the agent to the console."""
        self.console.log(text)
