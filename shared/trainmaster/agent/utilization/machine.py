"""CPU time and memory of this machine, from the kernel's files, for the utilization monitor.

`find_machine` chooses how to measure:

WholeMachine     /proc: a VM, or a host of a TPU slice, with everything that runs there
OwnCgroup        cgroup v2: the agent runs in a container, which is its machine
OwnProcesses     the agent, its descendants and its container: a VM of the local stack is a
                 tree of processes
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from trainmaster.agent.program.process_table import (
    CPU_TIMES,
    RESIDENT_PAGES,
    descendants,
    read_stats,
)
from trainmaster.agent.workspace import EMULATED_VM

CGROUP = "sys/fs/cgroup"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of the first line of /proc/stat. The time of guests is in `user` and `nice`. Source:
# proc(5).
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal


@dataclass(frozen=True)
class MachineReading:
    """The use of the CPUs and the memory."""

    cpu_s: float
    """CPU time used so far, in seconds, of all CPUs together."""
    cpus: float
    """CPUs that the machine may use; a container may have a part of one."""
    memory: float
    """Memory in use as a share of all memory, from 0 to 1.

    Caches that the kernel can drop do not count.
    """


class Machine(Protocol):
    """What is measured: a whole VM, a container, or some processes."""

    has_own_network: ClassVar[bool]
    """Whether the traffic of the interfaces is the machine's own."""

    def read(self) -> MachineReading:
        """Return the current reading.

        Raises OSError, ValueError, KeyError or IndexError if this kernel lacks a file.
        """


class WholeMachine:
    """A VM. `root` is the root of the file system, which tests replace."""

    has_own_network: ClassVar[bool] = True

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"

    def read(self) -> MachineReading:
        lines = (self._proc / "stat").read_text(encoding="ascii").splitlines()
        ticks = [int(field) for field in lines[0].split()[1:]]
        cpus = sum(1 for line in lines if line.startswith("cpu")) - 1  # the first line sums up all
        memory = read_memory_info(self._proc)
        busy_s = sum(ticks[field] for field in BUSY_FIELDS) / TICKS_PER_S
        return MachineReading(busy_s, cpus, 1 - memory["MemAvailable"] / memory["MemTotal"])


class OwnCgroup:
    """A container with cgroup v2."""

    has_own_network: ClassVar[bool] = True

    def __init__(self, root: Path = Path("/")) -> None:
        self._folder = root / CGROUP
        self._proc = root / "proc"

    def read(self) -> MachineReading:
        cpu_s = int(read_fields(self._folder / "cpu.stat")["usage_usec"]) / 1e6
        # The kernel drops inactive pages of files first; Kubernetes leaves them out of a
        # container's memory as well.
        dropped = int(read_fields(self._folder / "memory.stat").get("inactive_file", 0))
        used = int((self._folder / "memory.current").read_text(encoding="ascii")) - dropped
        return MachineReading(cpu_s, self._cpus(), min(max(used, 0) / self._memory_bytes(), 1.0))

    def _cpus(self) -> float:
        quota, period = (self._folder / "cpu.max").read_text(encoding="ascii").split()
        return float(_cpu_count()) if quota == "max" else int(quota) / int(period)

    def _memory_bytes(self) -> int:
        total = read_memory_info(self._proc)["MemTotal"]
        limit = (self._folder / "memory.max").read_text(encoding="ascii").strip()
        return total if limit == "max" else min(int(limit), total)


class OwnProcesses:
    """The agent and its descendants, and the program's processes, which may be in a container.

    A process that leaves the tree, because its parent ended before it, is not counted any more. The
    CPU time of ended processes is in that of their parents.
    """

    has_own_network: ClassVar[bool] = False

    def __init__(
        self,
        root: Path = Path("/"),
        pid: int | None = None,
        processes: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._proc = root / "proc"
        self._pid = os.getpid() if pid is None else pid
        self._processes = processes
        self._cpu_s = 0.0
        self._container_s = 0.0
        """CPU time of the container that runs, or ran last."""
        self._ended_s = 0.0
        """CPU time of the containers before it. No process of this machine inherits it."""

    def read(self) -> MachineReading:
        stats = read_stats(self._proc)
        tree = descendants({self._pid}, stats)
        others = {pid for pid in self._processes() if pid in stats}.difference(tree)
        container_s = _cpu_s(stats, others)
        if container_s < self._container_s:  # another container has begun
            self._ended_s += self._container_s
        self._container_s = container_s
        cpu_s = _cpu_s(stats, tree) + self._ended_s + container_s
        self._cpu_s = max(self._cpu_s, cpu_s)  # a process that left the tree must not reduce it
        resident_pages = sum(int(stats[pid][RESIDENT_PAGES]) for pid in (*tree, *others))
        total = read_memory_info(self._proc)["MemTotal"]
        memory = min(resident_pages * PAGE_BYTES / total, 1.0)
        return MachineReading(self._cpu_s, float(_cpu_count()), memory)


def find_machine(
    environ: Mapping[str, str],
    root: Path = Path("/"),
    processes: Callable[[], Sequence[int]] = tuple,
) -> Machine:
    """Return what to measure. `processes` returns those of the program.

    The root cgroup has `memory.current` only within a container's namespace.
    """
    if environ.get(EMULATED_VM):
        return OwnProcesses(root, processes=processes)
    folder = root / CGROUP
    needed = ("memory.current", "memory.max", "cpu.stat", "cpu.max")
    if all((folder / name).exists() for name in needed):
        return OwnCgroup(root)
    return WholeMachine(root)


def read_memory_info(proc: Path) -> dict[str, int]:
    """Return the values of /proc/meminfo in bytes."""
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    values = {}
    for line in lines:
        name, _, value = line.partition(":")
        values[name] = int(value.split()[0]) * 1024
    return values


def read_fields(path: Path) -> dict[str, str]:
    """Return the lines `NAME VALUE` of a file of a cgroup."""
    fields = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(" ")
        fields[name] = value
    return fields


def _cpu_s(stats: Mapping[int, Sequence[bytes]], pids: Iterable[int]) -> float:
    """Return the CPU time of processes and of their ended children."""
    return sum(int(field) for pid in pids for field in stats[pid][CPU_TIMES]) / TICKS_PER_S


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0))
