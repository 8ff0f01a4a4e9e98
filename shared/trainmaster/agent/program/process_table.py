"""Facts from the kernel's /proc: which processes the agent started, what they use, and whether one
was killed for lack of memory.

The agent marks everything that it starts with an environment variable, `MARK`, which child
processes inherit.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trainmaster.agent.program.launchers import gather

_CHILD_KILLED = re.compile(
    "|".join(
        [
            "SIGKILL",  # launchers and loky
            "by signal: Killed",  # PyTorch's data loader, where it knows the signal
            "exited unexpectedly",  # PyTorch's data loader
            "terminated abruptly",  # concurrent.futures
            *gather(lambda launcher: launcher.kill),
        ]
    )
)
"""What an error's message says about a child process that was killed."""
MARK = "TRAINMASTER_WORK"
"""Variable in the environment of everything that the agent starts."""
# How often processes are killed until none is left, and the time between
KILL_TRIES = 40
KILL_PAUSE_S = 0.025
STATE = 0
PARENT = 1
SESSION = 3
ZOMBIE = b"Z"
"""State of a process that has ended, and whose status its parent has not read."""
CPU_TIMES = slice(11, 15)
"""CPU times in user and system mode, of the process and of its ended children, in clock ticks."""
CHILD_CPU_TIMES = slice(13, 15)
"""CPU times in user and system mode, of the ended children alone, in clock ticks."""
START_TIME = 19
RESIDENT_PAGES = 21
"""An index in the fields of `read_stat`, as are `STATE`, `PARENT`, `SESSION` and `START_TIME`, and
the slices of CPU times.

Source: proc(5), whose numbers begin with 1 and have the process id and the command first.
"""


def read_oom_kill_counts() -> dict[str, int]:
    """Return how many processes the kernel has killed for lack of memory, by counter.

    The counters are those of cgroup v2, of cgroup v1 and of the machine, as far as they can be
    read.
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


def out_of_memory(
    returncode: int, message: str, before: Mapping[str, int], after: Mapping[str, int]
) -> bool:
    """Return whether a program, or a process that it had started, was killed for lack of memory.

    SIGKILL alone proves nothing, since the agent sends it too: a kernel counter must also have
    grown between `before` and `after`. A shell whose child was killed exits with 137, and a program
    that passes on Python's code of the child, -9, with 247.
    `message`: of the program's error, which may say that a child was killed.
    """
    return has_oom_kill(before, after) and was_killed(returncode, message)


def has_oom_kill(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Return whether the kernel has killed a process for lack of memory between two counts."""
    return any(count > before.get(source, count) for source, count in after.items())


def was_killed(returncode: int, message: str) -> bool:
    """Return whether a program, or a process that it had started, seems to have got SIGKILL."""
    kill = signal.SIGKILL
    is_own_end = returncode in (-kill, 128 + kill, 256 - kill)
    return is_own_end or bool(_CHILD_KILLED.search(message))


def kill_marked(work: Path) -> int:
    """Kill every running process that an agent on this VM started, in any session; return how many
    there were.

    The processes are recognized by their environment, not by stored process ids: an agent may crash
    between the start of a process and the storing of its id.
    """
    return kill_all(lambda: marked(work))


def kill_all(find: Callable[[], Collection[int]]) -> int:
    """Kill the processes that `find` returns, for about a second or until it returns none; return
    how many there were.
    """
    killed = set()
    for _ in range(KILL_TRIES):
        alive = find()
        if not alive:
            break
        for pid in alive:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # The kernel needs a moment. A process that it cannot kill (a hung device) is given up after
        # a second.
        time.sleep(KILL_PAUSE_S)
    return len(killed)


def marked(work: Path) -> list[int]:
    """Return the running processes that an agent on this VM started."""
    mark = f"{MARK}={work}".encode()
    return [pid for pid in process_ids() if is_marked(pid, mark)]


class ProcessUse(NamedTuple):
    """CPU seconds of a process and its ended children, and the bytes that they read and wrote.

    Bytes of sockets count only where the program uses read and write, as OpenSSL does; the counters
    of the machine have the rest. Source: Documentation/filesystems/proc.rst.
    """

    cpu_s: float
    moved: int


def process_uses(pids: Iterable[int]) -> dict[int, ProcessUse]:
    """Return what each of these processes has used, without those that have ended."""
    uses = {}
    for pid in pids:
        try:
            counts = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split()[1::2]
        except OSError:  # it has ended
            continue
        rchar, wchar, _, _, read_bytes, write_bytes, *_ = map(int, counts)
        ticks = sum(map(int, read_stat(pid)[CPU_TIMES]))
        cpu_s = ticks / os.sysconf("SC_CLK_TCK")
        uses[pid] = ProcessUse(cpu_s, rchar + wchar + read_bytes + write_bytes)
    return uses


def read_stat(pid: int, proc: Path = Path("/proc")) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the command: state, parent, …; none if the process
    has ended.

    The command may contain spaces and parentheses.
    """
    try:
        return (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def is_running(pid: int) -> bool:
    """Return whether the process exists and is no zombie: its parent may read its status late."""
    return read_stat(pid)[:1] not in ([], [ZOMBIE], [b"X"])


def find_first_process(mark: bytes) -> int | None:
    """Return the process that is number 1 of a container, as this machine numbers it.

    `mark`: a variable of its environment. None: there is none, or this machine's kernel does not
    run it, or its environment may not be read.
    """
    for pid in process_ids():
        if _number_in_container(pid) == 1 and is_marked(pid, mark):
            return pid
    return None


def _number_in_container(pid: int) -> int:
    """Return the number of a process in its innermost PID namespace; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    numbers = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
    return int(numbers[0][-1]) if numbers else 0


def descendants(
    roots: Collection[int],
    stats: Mapping[int, Sequence[bytes]],
    is_boundary: Callable[[int], bool] = lambda _: False,
) -> list[int]:
    """Return `roots` and what descends from them, each process before its children.

    `stats`: of all processes (`read_stat`). `is_boundary`: whether to leave out what descends from
    a process.
    """
    parents = {pid: int(fields[PARENT]) for pid, fields in stats.items()}
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    pending = [root for root in roots if root in parents and parents[root] not in roots]
    while pending:
        found.append(pending.pop())
        if not is_boundary(found[-1]):
            pending += children.get(found[-1], ())
    return found


def read_stats(proc: Path = Path("/proc")) -> dict[int, list[bytes]]:
    """Return `read_stat` of all processes."""
    stats = {pid: read_stat(pid, proc) for pid in process_ids(proc)}
    return {pid: fields for pid, fields in stats.items() if fields}


def process_ids(proc: Path = Path("/proc")) -> list[int]:
    """Return the ids of all processes of this machine."""
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def is_marked(pid: int, mark: bytes) -> bool:
    """Return whether a process other than this one has the variable `mark`, `NAME=value`, in its
    environment.
    """
    if pid == os.getpid():
        return False
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
