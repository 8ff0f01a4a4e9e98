"""Asking the running program to save: by a file for programs that poll, and by a signal to the
processes that catch it (`signal_receivers.py`).
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from trainmaster.agent.program.program import Program
from trainmaster.agent.program.signal_receivers import catches

FILE_VARIABLE = "TRAINMASTER_NOTICE_FILE"
"""Variable with the path of the file that appears when the program is asked to save."""
FOLDER_IN_CONTAINER = "/var/run/trainmaster-notice"
"""Where a container finds the folder of that file."""


class SaveRequest:
    """The request of one VM's programs, which run one after the other."""

    def __init__(self, work: Path, vm_id: str, number: signal.Signals) -> None:
        """`vm_id` tells the programs of this VM from those of other VMs whose processes may be
        visible. `number` is the signal.
        """
        self.folder = work / "notice"
        self._name = f"notice-{vm_id}"
        self._number = number
        self._found: list[int] = []
        """The processes that caught the signal when they were last looked for."""

    def variables(self, *, in_container: bool) -> dict[str, str]:
        """Return the variable that tells the program where the file will appear."""
        folder = FOLDER_IN_CONTAINER if in_container else str(self.folder)
        return {FILE_VARIABLE: f"{folder}/{self._name}"}

    def reset(self) -> None:
        """Remove the file before the next start. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / self._name).unlink()

    def create_file(self) -> None:
        """Create the file that programs poll for."""
        with contextlib.suppress(OSError):  # a full disk must not keep the signal from being sent
            (self.folder / self._name).touch(mode=0o644)

    def find_catchers(self, program: Program) -> bool:
        """Find the processes that catch the signal, so that little is left to do at the moment of
        the request. Return whether there are any.
        """
        self._found = program.find_catchers(self._number)
        return bool(self._found)

    def signal_catchers(self, program: Program) -> int:
        """Send the signal to the processes that catch it; return how many there were."""
        if not any(catches(pid, self._number) for pid in self._found):
            self.find_catchers(program)
        catchers = [pid for pid in self._found if catches(pid, self._number)]
        return program.ask(catchers, self._number)
