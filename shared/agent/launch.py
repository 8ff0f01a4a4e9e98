"""Starting the user's program, and clearing away what an earlier agent left running."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from shared.agent.environment import command_of, environment_of
from shared.agent.processes import kill_marked
from shared.agent.program import Program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shared.agent.console import Console
    from shared.agent.gang import Seat


class Launcher:
    def __init__(self, seat: Seat, console: Console, work: Path, environ: Mapping[str, str]) -> None:
        self._gang = seat.gang
        self._index = seat.index
        self._console = console
        self._work = work
        self._environ = environ

    def clean_up(self) -> None:
        """Nothing of an earlier agent runs once this returns."""
        left = kill_marked(self._work)
        if left:
            self._console.say(f"Killed {left} processes of an earlier life of the agent.")

    def start(self) -> Program:
        """Raises OSError or ValueError where the program cannot be started at all."""
        command = command_of(self._gang)
        self._console.say(f"Running module {self._gang.python_module}.")
        self._console.say(f"Running command: {shlex.join(command)}")
        folder = self._work / "run"  # stands first in the program's sys.path: nothing of ours may be in it
        folder.mkdir(exist_ok=True)
        env = {name: value for name, value in self._environ.items() if name != "PYTHONNOUSERSITE"}
        env.update(environment_of(self._gang, self._index))
        return Program(command, env=env, cwd=folder, work=self._work, console=self._console)
