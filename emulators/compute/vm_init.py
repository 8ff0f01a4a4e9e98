"""Process number one of an emulated VM: runs the startup script and owns every process that comes of it.

Started by `emulators.compute.powered_vm` as a file of its own, without site packages, because each VM has one:

    emulator ──stdin (held open)──► vm_init ──► bash startup-script ──► agent ──► training program (own session)

- It is a child subreaper: whatever loses its parent becomes its child, so nothing escapes, sessions or not.
- End of file on stdin is the power cable: everything is killed at once. The emulator holds the other end, so the VMs
  of an emulator that dies, by SIGKILL too, die with it.
- SIGTERM is the ACPI power button, and is passed on the way systemd does it on Google's images: first the startup
  script's own process group, then, when that has ended, everything still there. It exits when nothing is left.
  Source: metadata_tree-configs' google-startup-scripts.service (KillMode=process) and systemd-shutdown(8).
- A startup script that ends leaves the VM running, as a real one.
- When nothing is left it becomes the program it was given for the end, if the file is there that tells of the need:
  containers are somebody else's processes.

Linux only: subreapers and /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36  # Source: linux/prctl.h
TICK_S: Final = 0.05


def descendants(root: int) -> list[int]:
    """Every process below `root`, parents first, zombies included."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):  # ended while we looked
            # pid (comm) state ppid …; comm may hold spaces and parentheses
            children[int(stat.read_bytes().rpartition(b")")[2].split()[1])].append(int(stat.parent.name))
    found: list[int] = []
    frontier = [root]
    while frontier:
        frontier = [child for parent in frontier for child in children[parent]]
        found.extend(frontier)
    return found


def send(pids: list[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def reap() -> tuple[dict[int, int], bool]:
    """Wait statuses of the children that have ended, and whether any is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def kill_everything() -> None:
    """SIGKILL in rounds: who is killed while forking leaves a child that becomes ours, and dies in the next."""
    while True:
        send(descendants(os.getpid()), signal.SIGKILL)
        _, alive = reap()
        if not alive:
            return
        time.sleep(0.005)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Init:
    """The main loop, and what the power button has led to so far."""

    def __init__(self, script: str) -> None:
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        self._pressed = self._told_group = self._told_rest = False
        self._awake = self._listen()
        self._bash = os.posix_spawnp(
            "bash",
            ["bash", script],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)],
            setsid=True,
        )

    def _listen(self) -> int:
        """Signals wake the loop through a pipe. Handlers, not SIG_IGN: an ignored signal would stay ignored in the
        programs started from here."""
        awake, wake = os.pipe()
        for end in (awake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._press)
        for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: None)
        return awake

    def _press(self, *_: object) -> None:
        self._pressed = True

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([0, self._awake], [], [], TICK_S if self._told_group else None)
            if self._awake in ready:
                os.read(self._awake, 4096)
            if 0 in ready and not os.read(0, 4096):
                kill_everything()
                return
            ended, alive = reap()
            if self._bash in ended:
                print(f"startup-script exit status {os.waitstatus_to_exitcode(ended[self._bash])}", flush=True)
            if self._pressed:
                if not alive:
                    return
                self._tell()

    def _tell(self) -> None:
        """Each is told once."""
        if not self._told_group:
            self._told_group = True
            if group_lives(self._bash):
                os.killpg(self._bash, signal.SIGTERM)
        elif not self._told_rest and not group_lives(self._bash):
            self._told_rest = True
            send(descendants(os.getpid()), signal.SIGTERM)


if __name__ == "__main__":
    script, need, *last = sys.argv[1:]
    Init(script).run()
    if Path(need).exists():
        os.execv(last[0], last)  # noqa: S606 - an argv list of ours, no shell
