"""Facts from the kernel: which processes the agent started, and whether one was killed for lack of memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MARK = "TRAINMASTER_WORK"  # set in the environment of everything that the agent starts


def read_oom_kill_counts() -> dict[str, int]:
    """Return how many processes the kernel has killed for lack of memory, by counter.

    The counters are those of cgroup v2, of cgroup v1 and of the machine, as far as they can be read.
    """
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
    """Return whether a program was killed for lack of memory.

    SIGKILL alone proves nothing, since the agent sends it too: a kernel counter must also have grown between `before`
    and `after`. 137 is the exit status of a shell or a launcher whose child was killed.
    """
    was_killed = returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    return was_killed and any(count > before.get(source, count) for source, count in after.items())


def kill_marked(work: Path) -> int:
    """Kill every running process that an agent on this VM started, in any session; return how many there were.

    The processes are recognized by their environment, not by stored process ids: an agent may crash between the start
    of a process and the storing of its id.
    """
    killed = set()
    for _ in range(40):
        alive = marked(work)
        if not alive:
            break
        for pid in alive:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # The kernel needs a moment. A process that it cannot kill (a hung device) is given up after a second.
        time.sleep(0.025)
    return len(killed)


def marked(work: Path) -> list[int]:
    """Return the running processes that an agent on this VM started."""
    mark = f"{MARK}={work}".encode()
    return [pid for pid in process_ids() if _is_marked(pid, mark)]


def use_of(pids: Iterable[int]) -> dict[int, tuple[float, int]]:
    """Return the CPU seconds of each running process and its ended children, and the bytes that they read and wrote.

    Bytes count whether they are of files, pipes or disks. Those of sockets count only where the program uses read and
    write; the machine's own counters have the rest. Source: Documentation/filesystems/proc.rst.
    """
    uses = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split()
        except OSError:  # it has ended
            continue
        names = dict(zip(lines[::2], lines[1::2]))
        moved = sum(int(names[name]) for name in ("rchar:", "wchar:", "read_bytes:", "write_bytes:"))
        uses[pid] = (sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK"), moved)
    return uses


def process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_marked(pid: int, mark: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
