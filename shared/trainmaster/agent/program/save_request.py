"""Asking the running program to save: by a file for programs that poll, and by a signal to the
processes that catch it.

Many processes do not catch the signal and would die of it unsaved: launchers, shells, workers of
data loaders that ran `exec`. `/proc/PID/status` says which signals a process catches. In each
branch of the program's tree of processes, the topmost one that catches the signal gets it.
Launchers never do: torchrun passes SIGTERM on, and kills after 30 s what still saves; of SIGUSR1 it
dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from trainmaster.agent.program.process_table import descendants, is_marked, process_ids, read_stats

FILE_VARIABLE = "TRAINMASTER_NOTICE_FILE"
FOLDER_IN_CONTAINER = "/var/run/trainmaster-notice"
LAUNCHERS = frozenset(
    (
        "torchrun",
        "accelerate",
        "deepspeed",
        "horovodrun",
        "mpirun",
        "mpiexec",
        "orterun",
        "prterun",
        "prun",
    )
)
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.",
)
LAUNCHER_WORDS = (
    4  # how far in a command line the launcher's name stands: `python3 -u -m torch.distributed.run`
)


class SaveRequest:
    """The request of one VM's programs, which run one after the other."""

    def __init__(self, work: Path, vm_id: str, number: signal.Signals) -> None:
        """`vm_id` tells the programs of this VM from those of other VMs whose processes may be
        visible.
        """
        self.folder = work / "notice"
        self._name = f"notice-{vm_id}"
        self._number = number
        self._found: list[int] = []

    def variables(self, *, in_container: bool) -> dict[str, str]:
        """Return the variable that tells the program where the file will appear."""
        return {
            FILE_VARIABLE: f"{FOLDER_IN_CONTAINER if in_container else self.folder}/{self._name}"
        }

    def reset(self) -> None:
        """Remove the file before the next start. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / self._name).unlink()

    def create_file(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep the signal from being sent
            (self.folder / self._name).touch(mode=0o644)

    def find_catchers(self, root: int | None) -> bool:
        """Find the processes that catch the signal, so that little is left to do at the moment of
        the request. Return whether there are any.

        `root`: the program's first process; None: it is in a container, and known by its
        environment only.
        """
        self._found = find_catchers(
            {root} if root is not None else self._roots_in_container(), self._number
        )
        return bool(self._found)

    def signal_catchers(self, root: int | None) -> int:
        """Send the signal to the processes that catch it; return how many there were."""
        if not any(_catches(pid, self._number) for pid in self._found):
            self.find_catchers(root)
        sent = 0
        for pid in [pid for pid in self._found if _catches(pid, self._number)]:
            with contextlib.suppress(OSError):
                os.kill(pid, self._number)
                sent += 1
        return sent

    def processes(self, root: int | None) -> list[int]:
        """Return all processes of the program, each before its children.

        `root`: as in `find_catchers`.
        """
        if root is None:
            return descendants(self._roots_in_container(), read_stats())
        mark = "=".join(*self.variables(in_container=False).items())
        return descendants(
            {root, *(pid for pid in process_ids() if is_marked(pid, mark.encode()))}, read_stats()
        )

    def _roots_in_container(self) -> set[int]:
        """Return the container's processes.

        Those of the engine itself have the variable too, but run outside.
        """
        mark, outside = (
            "=".join(*self.variables(in_container=True).items()),
            _namespace(os.getpid()),
        )
        return {
            pid
            for pid in process_ids()
            if is_marked(pid, mark.encode()) and _namespace(pid) != outside
        }


def find_catchers(roots: set[int], number: int) -> list[int]:
    """Return the topmost process of each branch that catches the signal, among `roots` and their
    descendants.
    """
    found = descendants(roots, read_stats(), lambda pid: is_catcher(pid, number))
    return [pid for pid in found if is_catcher(pid, number)]


def is_catcher(pid: int, number: int) -> bool:
    """Return whether the process catches the signal, and is no launcher."""
    return _catches(pid, number) and not _is_launcher(pid)


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _catches(pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(mask, 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False


def _is_launcher(pid: int) -> bool:
    try:
        words = (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .decode(errors="replace")
            .split("\0")[:LAUNCHER_WORDS]
        )
    except OSError:
        return False
    return any(
        word.rpartition("/")[2] in LAUNCHERS or word.startswith(LAUNCHER_MODULES) for word in words
    )
