"""Throw hostile input at every entrance, with a budget of time and memory for each input.

    python -m tests.fuzz.run --seconds 3600 --seed 1

writes a table, and ends with 1 if an input found a defect. The entrance with the fewest inputs so
far has the next turn, so that a slow one gets more time, and as many inputs as a quick one.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.entrances import entrances
from tests.fuzz.inputs import hostile

CPU_S_MAX: Final = 10.0
"""CPU time of one input.

On this machine's share of the functions' CPUs it is far below every timeout.
"""
QUICK_S: Final = 0.01
"""An input that took less time is measured only with those after it: it cannot have exceeded the
budget.
"""
MEASURED_EVERY: Final = 100
"""At most so many quick inputs count for the next slow one."""
TURN_S_MAX: Final = 20.0
TURN_INPUTS: Final = 2000
"""After so many inputs of a turn, an entrance that keeps what it accepts would fill the memory."""


@dataclass
class Report:
    """What happened at one entrance."""

    inputs: int = 0
    accepted: int = 0
    worst: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    """`accepted` and `refused` → CPU seconds of the slowest input, largest memory in MiB, number of
    the slowest.
    """
    defects: list[str] = field(default_factory=list)

    def add(self, outcome: str, cpu_s: float, memory_mib: float, number: int) -> None:
        known = self.worst.get(outcome, (0.0, 0.0, 0))
        slowest = (cpu_s, number) if cpu_s > known[0] else (known[0], known[2])
        self.worst[outcome] = (slowest[0], max(known[1], memory_mib), slowest[1])

    def extend(self, turn: Report) -> None:
        """Add what happened in another turn."""
        self.inputs += turn.inputs
        self.accepted += turn.accepted
        self.defects += turn.defects
        for outcome, (cpu_s, memory_mib, number) in turn.worst.items():
            self.add(outcome, cpu_s, memory_mib, number)


class Used:
    """What this process uses.

    Each look takes a millisecond where system calls are slow, longer than most inputs.
    """

    def __init__(self) -> None:
        self._cpu_s, self._memory_mib = 0.0, 0.0
        self.since_last_call()

    def since_last_call(self) -> tuple[float, float]:
        """Return the CPU seconds since the last call, and the most memory in MiB beyond what was
        used then.
        """
        cpu_s, memory = time.process_time() - self._cpu_s, memory_mib(b"VmHWM") - self._memory_mib
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        self._cpu_s, self._memory_mib = time.process_time(), memory_mib(b"VmRSS")
        return cpu_s, memory


def memory_mib(key: bytes) -> float:
    """Return VmRSS or VmHWM of this process."""
    status = Path("/proc/self/status").read_bytes()
    return int(status.partition(key + b":")[2].split()[0]) / 1024


def fuzz(
    name: str, seed: int, seconds: float, inputs_max: int = TURN_INPUTS, first: int = 0
) -> Report:
    """Run inputs at one entrance until the time or the number is used up.

    `first`: the number of its inputs in earlier turns of the same seed.
    """
    entrance, report = entrances()[name], Report()
    for number in range(5):  # what the first input imports and builds is not its own
        with suppress(*entrance.errors):
            entrance.read(hostile(Random(f"first {number}"), entrance.seeds))  # noqa: S311 - not for secrets
    used, end = Used(), time.monotonic() + seconds
    while time.monotonic() < end and report.inputs < inputs_max:
        number = seed * 1_000_000_000 + first + report.inputs
        making = time.monotonic()
        data = hostile(Random(f"{name} {number}"), entrance.seeds)  # noqa: S311 - not for secrets
        report.inputs += 1
        if time.monotonic() - making > QUICK_S:
            used.since_last_call()  # to make it may take more than to read it
        started, outcome = time.monotonic(), "accepted"
        try:
            entrance.read(data)
            report.accepted += 1
        except entrance.errors:
            outcome = "refused"
        except (Exception, MemoryError, RecursionError) as error:  # noqa: BLE001 - each is a defect
            where = traceback.extract_tb(error.__traceback__)[-1]
            report.defects.append(
                f"{name} {number}: {type(error).__name__} {str(error)[:200]} at"
                f" {where.filename}:{where.lineno}"
            )
            continue
        if time.monotonic() - started < QUICK_S and report.inputs % MEASURED_EVERY:
            continue
        cpu_s, memory = used.since_last_call()
        report.add(outcome, cpu_s, memory, number)
        if cpu_s > CPU_S_MAX or memory > entrance.memory_mib:
            report.defects.append(
                f"{name} {number}: {outcome} after {cpu_s:.1f} s and {memory:.0f} MiB ({len(data)}"
                " bytes)"
            )
    return report


def take_turns(names: Sequence[str], seed: int, seconds: float, jobs: int) -> dict[str, Report]:
    """Run inputs at all of the entrances, in so many processes, until the time is used up."""
    reports = {name: Report() for name in names}
    turn_s = min(TURN_S_MAX, seconds * jobs / len(names) / 2)
    end = time.monotonic() + seconds
    running: dict[Future[Report], str] = {}
    with ProcessPoolExecutor(jobs) as pool:
        while True:
            while len(running) < min(jobs, len(names)) and (left := end - time.monotonic()) > 0:
                waiting = [name for name in names if name not in running.values()]
                name = min(waiting, key=lambda name: reports[name].inputs)
                turn = (name, seed, min(turn_s, left), TURN_INPUTS, reports[name].inputs)
                running[pool.submit(fuzz, *turn)] = name
            if not running:
                return reports
            for turn_done in wait(running, return_when=FIRST_COMPLETED).done:
                reports[running.pop(turn_done)].extend(turn_done.result())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all entrances together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="name of one entrance")
    options = parser.parse_args(argv)
    names = [options.only] if options.only else list(entrances())
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    reports = take_turns(names, options.seed, options.seconds, options.jobs)
    print(
        "| entrance | inputs | accepted | worst accepted | worst refused |\n| --- | --- | --- | ---"
        " | --- |"
    )
    for name, report in reports.items():
        worst = [report.worst.get(outcome) for outcome in ("accepted", "refused")]
        costs = " | ".join(f"{cost[0]:.2f} s, {cost[1]:.0f} MiB" if cost else "" for cost in worst)
        print(f"| {name} | {report.inputs} | {report.accepted} | {costs} |")
    defects = [defect for report in reports.values() for defect in report.defects]
    print(
        *defects[:50],
        f"{sum(report.inputs for report in reports.values())} inputs, {len(defects)} defects",
        sep="\n",
    )
    return bool(defects)


if __name__ == "__main__":
    sys.exit(main())
