"""What the kernel knows about our processes: which are ours, and which it killed for memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK = "TRAINMASTER_WORK"  # in the environment of everything the agent starts, and of nothing else


def oom_kills() -> dict[str, int]:
    """How many processes the kernel has killed for memory, by each counter that can be read: cgroup v2, v1, machine."""
    sources = {"/proc/vmstat"}
    try:
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                sources.add(f"/sys/fs/cgroup{path.rstrip('/')}/memory.events")
            elif "memory" in controllers.split(","):
                sources.add(f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.oom_control")
    except (OSError, ValueError):
        pass
    counters = {}
    for source in sources:
        try:
            for line in Path(source).read_text(encoding="utf-8").splitlines():
                if line.startswith("oom_kill "):
                    counters[source] = int(line.split()[1])
        except (OSError, ValueError):
            continue
    return counters


def out_of_memory(returncode: int, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """SIGKILL alone proves nothing (it may be ours): the kernel must also have counted a kill meanwhile.

    137 is how a shell or a launcher passes on that its child was killed.
    """
    killed = returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    return killed and any(count > before.get(source, count) for source, count in after.items())


def kill_marked(work: Path) -> int:
    """Kills everything this VM's agents ever started and that still incarnations, in whatever session; how many there were.

    Found by its environment, not by a remembered process id: nothing slips through between a start and a note of it.
    """
    mark = f"{MARK}={work}".encode()
    killed = set()
    for _ in range(40):
        alive = [pid for pid in processes() if _is_marked(pid, mark)]
        if not alive:
            break
        for pid in alive:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.025)  # the kernel needs a moment; what it cannot kill (a hung device) is not waited for longer
    return len(killed)


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_marked(pid: int, mark: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
