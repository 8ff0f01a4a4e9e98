"""Measure all systems in turn: `python -m bench.peers --page`.

`make bench-peers` installs them first.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench import report
from bench.peers import measures
from bench.peers.launchers import DLRover, FtLauncher, Torchrun
from bench.peers.measures import Measure
from bench.peers.ray import Ray
from bench.peers.run import NotMeasured, Run
from bench.peers.services import Dbos, Dstack, Metaflow, SkyPilot
from bench.peers.system import ENVIRONMENTS, System
from bench.peers.trainmaster import Trainmaster
from bench.report import Row

SYSTEMS: Final = (Trainmaster, Torchrun, FtLauncher, DLRover, Ray, Metaflow, Dbos, Dstack, SkyPilot)
Measures = Mapping[str, tuple[Measure, str]]
"""Name for `--only` → a measure, which yields values by the names of their rows, and the row that
gets the reason if it fails.
"""


class Comparison:
    """The rows, while they are measured."""

    def __init__(self, deadline: float, selected: Sequence[str]) -> None:
        """`deadline`: by the monotonic clock, after which nothing more is measured. `selected`:
        names of the measures that were asked for.
        """
        self.rows: dict[str, Row] = {}
        self.deadline, self._selected = deadline, selected
        self._numbers = itertools.count(1)

    def measure(self, measures: Measures, systems: Sequence[System], threads: int) -> None:
        """Measure each thing on one system after the other, or on `threads` of them at the same
        time.
        """
        for name, (measure, row) in measures.items():
            if name in self._selected:
                # At least one thread: if all systems failed to start, `threads` may be 0.
                with ThreadPoolExecutor(max(threads, 1)) as pool:
                    list(pool.map(partial(self._measure, name, measure, row), systems))

    def _measure(self, name: str, measure: Measure, row: str, system: System) -> None:
        has_failed = row in self.rows and system.name in self.rows[row].reasons
        if time.monotonic() > self.deadline or has_failed:  # waiting for it again takes minutes
            return
        run = Run(system.folder / f"{next(self._numbers)}.jsonl", system.ranks)
        try:
            for values in measure(system, run):
                for found, value in values.items():
                    self.add(found, system, value)
        except Exception as reason:  # noqa: BLE001 - a failed measurement must not lose the others
            self.row_to_fill(row).reasons[system.name] = words(reason)
            print(f"{row}: {system.name}: {reason!r}", flush=True)
        finally:
            system.end(run)

    def add(self, name: str, system: System, value: float) -> None:
        row = self.row_to_fill(name)
        row.values.setdefault(system.name, []).append(round(value, 3))
        print(f"{name}: {system.name}: {value:.2f} {row.unit} (load {row.loads[-1]})", flush=True)

    def row_to_fill(self, name: str) -> Row:
        """Return the row of this name, a new one if there is none, after adding the current load.

        The unit is the first word after the last colon, as in "program: lines", if `UNITS` has this
        word; otherwise seconds.
        """
        word = name.rpartition(": ")[2].partition(" ")[0]
        row = self.rows.setdefault(name, Row(name, word if word in measures.UNITS else "s"))
        row.loads.append(round(os.getloadavg()[0], 1))
        return row


def words(reason: Exception) -> str:
    """Return the text of the cell that says why there is no value."""
    return str(reason) if isinstance(reason, NotMeasured) else type(reason).__name__


def compare(systems: Sequence[System], rounds: int, comparison: Comparison) -> None:
    """Measure all systems.

    Three groups: AT_ONCE is measured first, once, on all systems at the same time. IN_TURN is then
    measured in each round, one system after the other, until the time is over. AT_LAST leaves some
    systems broken.
    """
    for system in systems:
        runs_program = bool(system.program)
        if runs_program:
            comparison.add("program: lines", system, len(system.lines()))
    comparison.measure(measures.AT_ONCE, systems, len(systems))
    for _ in range(rounds):
        comparison.measure(measures.IN_TURN, systems, threads=1)
    comparison.deadline = float("inf")  # the last group is measured once, and takes minutes
    comparison.measure(measures.AT_LAST, systems, len(systems))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--minutes", type=float, default=8, help="begin no round's measurement later"
    )
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--systems", nargs="+", choices=names, default=names)
    everything = [*measures.AT_ONCE, *measures.IN_TURN, *measures.AT_LAST]
    parser.add_argument(
        "--only", nargs="+", choices=everything, default=everything, help="measure only this"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ENVIRONMENTS / "run",
        help="what a run leaves: moments and logs",
    )
    parser.add_argument(
        "--page", action="store_true", help="write docs/benchmarks.json and the plots"
    )
    options = parser.parse_args()
    # SIGTERM ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    shutil.rmtree(options.folder, ignore_errors=True)
    comparison = Comparison(time.monotonic() + 60 * options.minutes, options.only)
    versions = {}
    ready: list[System] = []
    with ExitStack() as stack:
        for system_type in SYSTEMS:
            if system_type.name not in options.systems:
                continue
            system = system_type(options.folder.absolute() / system_type.__name__.lower())
            stack.callback(system.down)
            try:
                versions[system_type.name] = system.version()
                system.up()
                ready.append(system)
            except Exception as reason:  # noqa: BLE001 - as above
                versions[system_type.name] = f"skipped: {words(reason)}"
            print(f"{system_type.name} {versions[system_type.name]}", flush=True)
        compare(ready, options.rounds, comparison)
    if options.page:
        report.store(comparison.rows.values(), versions)
        report.draw()


if __name__ == "__main__":
    main()
