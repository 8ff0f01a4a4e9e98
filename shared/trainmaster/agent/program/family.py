"""The processes that the agent's programs have started, also those whose parents have ended.

    agent ──┬──► program ──► rank ──► …      in sessions of their own
            ├──► rank or daemon whose parent has ended: the agent is its parent now
            ├──► gcsfuse                     marked as such
            └──► commands of the agent       in the agent's session

The agent ends all of it before the next program starts. It is a subreaper: the kernel makes it the
parent of each descendant that loses its own. A process may change its session and its environment,
but it cannot escape this adoption. What an earlier agent's programs have left is found by its mark
only, a variable in its environment (`process_table`).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import AnyStr

from trainmaster.agent.program.process_table import (
    MARK,
    PARENT,
    SESSION,
    STATE,
    ZOMBIE,
    descendants,
    is_marked,
    is_running,
    marked,
    read_stats,
)
from trainmaster.agent.workspace import Family

PR_SET_CHILD_SUBREAPER = 36
"""Source: linux/prctl.h."""
REAP_S = 2.0
"""Time between two looks for adopted processes that have ended."""
GCSFUSE = "gcsfuse"
"""Name in the agent's folder. Its path is the mark of gcsfuse, which does not end with a
program.
"""


class Descendants:
    """The agent's family by descent. May be used from any thread."""

    def __init__(self, work: Path) -> None:
        """Become the parent of all descendants that lose theirs. Raises OSError."""
        self._work = work
        self._lock = threading.Lock()
        self._children: set[int] = set()
        """Processes that this agent has started in other sessions, and waits for itself."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")

    def start(self, start: Callable[[], Popen[AnyStr]]) -> Popen[AnyStr]:
        """Call `start`, which starts a process in a session of its own, and return the process.

        The caller waits for its end; `reap` leaves it alone.
        """
        with self._lock:
            process = start()
            self._children.add(process.pid)
        return process

    def started(self) -> list[int]:
        """Return the running processes that programs have started: neither gcsfuse nor the agent's
        own commands.
        """
        stats = read_stats()
        agent = os.getpid()
        mount_mark = f"{MARK}={self._work / GCSFUSE}".encode()
        family = descendants({agent}, stats)[1:]
        mounts = {pid for pid in family if is_marked(pid, mount_mark)}
        of_mounts = set(descendants(mounts, stats))
        own_session = stats[agent][SESSION]

        def is_of_program(pid: int) -> bool:
            return stats[pid][SESSION] != own_session and pid not in of_mounts

        return [pid for pid in family if is_of_program(pid) and is_running(pid)]

    def reap(self) -> None:
        """Read the status of adopted processes that have ended, so that the kernel forgets them."""
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        stats = read_stats()
        agent = os.getpid()
        with self._lock:
            for pid, fields in stats.items():
                is_child = int(fields[PARENT]) == agent and fields[STATE] == ZOMBIE
                is_adopted = pid not in self._children and fields[SESSION] != stats[agent][SESSION]
                if is_child and is_adopted:
                    os.waitpid(pid, os.WNOHANG)

    def reap_for_ever(self) -> None:
        """Call `reap` every `REAP_S`, without end."""
        while True:
            self.reap()
            time.sleep(REAP_S)


def adopt_orphans(
    work: Path, start_thread: Callable[[Callable[[], None]], None]
) -> Descendants | None:
    """Become the parent of all descendants that lose theirs; return the agent's family.

    None if this system does not support it: then only the mark tells what programs have started.
    """
    try:
        family = Descendants(work)
    except (OSError, AttributeError):  # an older kernel, or a library without prctl
        return None
    start_thread(family.reap_for_ever)
    return family


def survivors(work: Path, family: Family | None) -> list[int]:
    """Return the running processes that programs of this agent, or of an earlier one on this VM,
    have started.
    """
    found = marked(work)
    if family is not None:
        known = set(found)
        found += [pid for pid in family.started() if pid not in known]
    return found
