"""Throw hostile input at every entrance, with a budget of time and memory for each input.

    python -m tests.fuzz.run --inputs 1000000 --seconds 3600 --seed 1

writes a table, and ends with 1 if an input found a defect. All entrances get the same number of
inputs: the one with the fewest so far has the next turn, so that a slow one gets more time. Each
turn begins with new state.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.entrance import RefusedError
from tests.fuzz.entrances import ENTRANCES
from tests.fuzz.inputs import WORD, hostile

CPU_S_MAX: Final = 10.0
"""CPU time of one input.

On this machine's share of the functions' CPUs it is far below every timeout.
"""
QUICK_S: Final = 0.01
"""An input that took less CPU time is measured only with those after it: it cannot have exceeded
the budget.
"""
MEASURED_EVERY: Final = 100
"""Most quick inputs that are measured together, with the slow one after them."""
TURN_S_MAX: Final = 20.0
TURN_INPUTS: Final = 1000
"""Most inputs of a turn. With more, an entrance that keeps what it accepts fills the memory."""
ACCEPTED: Final = "accepted"
KINDS_SHOWN: Final = 3
OUTCOME_WORDS: Final = 8
"""Refusals whose messages begin with the same words have the same outcome."""


@dataclass
class Report:
    """What happened at one entrance."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """`accepted`, or the kind of a refusal → number of inputs."""
    outcomes: set[str] = field(default_factory=set)
    """Kinds with the first words of their messages."""
    worst: dict[bool, tuple[float, float]] = field(default_factory=dict)
    """Whether inputs were accepted → CPU seconds of the slowest, largest memory in MiB."""
    defects: list[str] = field(default_factory=list)

    def measured(self, cpu_s: float, memory_mib: float, *, is_accepted: bool) -> None:
        known = self.worst.get(is_accepted, (0.0, 0.0))
        self.worst[is_accepted] = (max(known[0], cpu_s), max(known[1], memory_mib))

    def extend(self, turn: Report) -> None:
        """Add what happened in another turn."""
        self.inputs += turn.inputs
        self.kinds += turn.kinds
        self.outcomes |= turn.outcomes
        self.defects += turn.defects
        for is_accepted, (cpu_s, memory_mib) in turn.worst.items():
            self.measured(cpu_s, memory_mib, is_accepted=is_accepted)

    def row(self, name: str) -> str:
        """Return the row of the table."""
        refused = [(kind, times) for kind, times in self.kinds.most_common() if kind != ACCEPTED]
        kinds = [f"{kind} {times:,}" for kind, times in refused[:KINDS_SHOWN]]
        if rest := sum(times for _, times in refused[KINDS_SHOWN:]):
            kinds.append(f"others {rest:,}")
        accepted = self.kinds[ACCEPTED]
        share = f"{100 * accepted / max(1, self.inputs):.0f} %"
        costs = [self.worst.get(is_accepted) for is_accepted in (True, False)]
        shown = [f"{cost[0]:.2f} s, {cost[1]:.0f} MiB" if cost else "" for cost in costs]
        cells = (
            name,
            f"{self.inputs:,}",
            f"{accepted:,} ({share})",
            ", ".join(kinds),
            str(len(self.outcomes)),
            *shown,
        )
        return f"| {' | '.join(cells)} |"


HEAD: Final = (
    "| entrance | inputs | accepted | refused | outcomes | worst accepted | worst refused |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


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
    entrance, report = ENTRANCES[name](), Report()
    for number in range(5):  # what the first input imports and builds is not its own
        with suppress(*entrance.errors):
            entrance.read(hostile(Random(f"first {number}"), entrance.seeds))  # noqa: S311 - not for secrets
    used, end = Used(), time.monotonic() + seconds
    while time.monotonic() < end and report.inputs < inputs_max:
        number = seed * 1_000_000_000 + first + report.inputs
        making = time.process_time()
        data = hostile(Random(f"{name} {number}"), entrance.seeds)  # noqa: S311 - not for secrets
        report.inputs += 1
        started, kind, message = time.process_time(), ACCEPTED, ""
        if started - making > QUICK_S:
            used.since_last_call()  # to make it may take more than to read it
        try:
            entrance.read(data)
        except entrance.errors as error:
            kind = error.kind if isinstance(error, RefusedError) else type(error).__name__
            message = str(error)[:300]
        except (Exception, MemoryError, RecursionError) as error:  # noqa: BLE001 - each is a defect
            where = traceback.extract_tb(error.__traceback__)[-1]
            report.defects.append(
                f"{name} {number}: {type(error).__name__} {str(error)[:200]} at"
                f" {where.filename}:{where.lineno}"
            )
            continue
        report.kinds[kind] += 1
        report.outcomes.add(outcome(kind, message))
        if time.process_time() - started < QUICK_S and report.inputs % MEASURED_EVERY:
            continue
        cpu_s, memory = used.since_last_call()
        report.measured(cpu_s, memory, is_accepted=kind == ACCEPTED)
        if cpu_s > CPU_S_MAX or memory > entrance.memory_mib:
            report.defects.append(
                f"{name} {number}: {kind} after {cpu_s:.1f} s and {memory:.0f} MiB ({len(data)}"
                " bytes)"
            )
    return report


def outcome(kind: str, message: str) -> str:
    """Return a text that is the same for all inputs that ended at the same check, more or less."""
    words = [word for word in WORD.findall(message.encode()) if word.isalpha()]
    return f"{kind} {b' '.join(words[:OUTCOME_WORDS]).decode()}"


def take_turns(
    names: Sequence[str], seed: int, seconds: float, inputs: int, jobs: int
) -> dict[str, Report]:
    """Run inputs at all of the entrances, in `jobs` processes, until `seconds` have passed or
    `inputs` inputs have run.
    """
    reports = {name: Report() for name in names}
    turn_s = min(TURN_S_MAX, seconds * jobs / len(names) / 2)
    share = -(-inputs // len(names))
    end = time.monotonic() + seconds
    running: dict[Future[Report], str] = {}
    with ProcessPoolExecutor(jobs, initializer=logging.disable) as pool:
        while True:
            while len(running) < jobs and (left := end - time.monotonic()) > 0:
                waiting = [
                    name
                    for name in names
                    if name not in running.values() and reports[name].inputs < share
                ]
                if not waiting:
                    break
                name = min(waiting, key=lambda name: reports[name].inputs)
                done = reports[name].inputs
                turn = (name, seed, min(turn_s, left), min(TURN_INPUTS, share - done), done)
                running[pool.submit(fuzz, *turn)] = name
            if not running:
                return reports
            for turn_done in wait(running, return_when=FIRST_COMPLETED).done:
                reports[running.pop(turn_done)].extend(turn_done.result())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all entrances together")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all entrances together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="name of one entrance")
    options = parser.parse_args(argv)
    names = [options.only] if options.only else list(ENTRANCES)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    reports = take_turns(names, options.seed, options.seconds, options.inputs, options.jobs)
    print(HEAD, *(report.row(name) for name, report in reports.items()), sep="\n")
    defects = [defect for report in reports.values() for defect in report.defects]
    inputs = sum(report.inputs for report in reports.values())
    print(
        *defects[:50],
        f"{inputs:,} of {options.inputs:,} inputs, {len(defects)} defects",
        sep="\n",
    )
    return bool(defects)


if __name__ == "__main__":
    sys.exit(main())
