"""One run of a program on a system: its moments, and how it comes through a fault."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

POLL_S: Final = 0.02
LIMIT_S: Final = 60.0
"""An event that takes longer counts as not happening."""


class NotMeasured(Exception):  # noqa: N818 - no error: the reason is a cell of the table
    """Why a system has no value in a row."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the program: at which time which rank's process did what."""

    at: float
    rank: int
    pid: int
    moment: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the program, which appends its moments to `file`."""

    file: Path
    ranks: int = 2
    fewest: tuple[int, ...] = ()
    """If not empty, the ranks meet after each step, and the program may go on with as few."""
    has_collective: bool = False
    """Whether the program is `ddp.py`."""

    @property
    def moments(self) -> list[Moment]:
        if not self.file.exists():
            return []
        lines = self.file.read_text(encoding="ascii").splitlines(keepends=True)
        return [Moment(**json.loads(line)) for line in lines if line.endswith("\n")]

    @property
    def processes(self) -> dict[int, int]:
        """Rank → its latest process."""
        return {moment.rank: moment.pid for moment in self.moments if moment.moment == "start"}

    def firsts(self, moment: str, after: float = 0.0) -> list[float]:
        """Return when each rank first had the moment in a process that began after a time, in order
        of time.
        """
        found: dict[int, float] = {}
        begun = set()
        for entry in self.moments:
            if entry.moment == "start" and entry.at > after:
                begun.add(entry.pid)
            if entry.moment == moment and entry.pid in begun:
                found.setdefault(entry.rank, entry.at)
        return sorted(found.values())

    def is_training(self, after: float = 0.0) -> bool:
        """Whether each rank has taken a step in a process that began after a time."""
        return len(self.firsts("step", after)) == self.ranks

    def finish(self) -> None:
        """Let the program end after its step."""
        self.file.with_name(f"{self.file.name}.finish").touch()


def until(is_so: Callable[[], object], what: str, within_s: float = LIMIT_S) -> None:
    """Wait. Raises NotMeasured."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise NotMeasured(f"no {what} within {within_s:.0f} s")
        time.sleep(POLL_S)


def recovery(run: Run, fault: Callable[[], None], within_s: float = LIMIT_S) -> dict[str, float]:
    """Inject the fault and return the seconds from it to each phase, until every rank steps in a
    new process.
    """
    old = list(run.processes.values())
    gone: list[float] = []
    began = time.time()
    fault()

    def is_over() -> bool:
        if not gone and not any(map(is_alive, old)):
            gone.append(time.time())
        return run.is_training(began)

    until(is_over, "step of all ranks in new processes", within_s)
    starts = run.firsts("start", began)
    phases = {
        "last old process gone": gone[0] if gone else None,
        "first new process": starts[0],
        "last new process": starts[-1],
        "next step of all ranks": run.firsts("step", began)[-1],
    }
    for moment in ("import", "join"):  # of `ddp.py`
        for at in run.firsts(moment, began)[-1:]:
            phases[f"last {moment}"] = at
    return {phase: at - began for phase, at in phases.items() if at is not None}


def is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def family(pid: int) -> list[psutil.Process]:
    """Return the process and its descendants; nothing if it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def families(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the processes and their descendants."""
    return [process for pid in pids for process in family(pid)]


def kill(*pids: int) -> None:
    """End the processes and their descendants by SIGKILL, as the loss of their machine does."""
    for process in set(families(pids)):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def footprint(processes: list[psutil.Process], seconds: float) -> dict[str, float]:
    """Return the number of processes, the memory that is theirs (PSS), and what share of a core
    they use.
    """

    def usage() -> Iterator[tuple[int, float]]:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                yield process.memory_full_info().pss, times.user + times.system

    began = sum(cpu for _, cpu in usage())
    time.sleep(seconds)
    ended = list(usage())
    return {
        "processes": len(ended),
        "MiB": sum(memory for memory, _ in ended) / 2**20,
        "% of a core": 100 * (sum(cpu for _, cpu in ended) - began) / seconds,
    }
