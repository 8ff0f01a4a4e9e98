"""Measure, print and store the figures.

`make bench` runs everything, `make bench-quick` one small size.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from bench import gangs, many_jobs, report
from bench.cloud import Emulators, emulators
from bench.figures import Figures

SIZES: Final = (1, 10, 100, 1000)

Measure = Callable[[Emulators], Iterable[Figures]]
"""Returns the figures in one or several parts, each as soon as it has been measured."""

FULL: Final[dict[str, Measure]] = {
    "queue": lambda cloud: many_jobs.measure_queue(cloud, SIZES),
    "sweep": lambda cloud: many_jobs.measure_sweep(cloud, SIZES),
    **{f"gang-{size}": partial(gangs.measure, sizes=[size]) for size in SIZES},
}
"""Name for `--only` → the measurement."""
QUICK: Final[dict[str, Measure]] = {
    "queue": lambda cloud: many_jobs.measure_queue(cloud, [3]),
    "sweep": lambda cloud: many_jobs.measure_sweep(cloud, [3]),
    "gang": lambda cloud: gangs.measure(cloud, [3]),
}


def run(
    measurements: dict[str, Measure], cloud: Emulators, data_file: Path | None = None
) -> Figures:
    """Measure and print.

    After each part, its figures replace those in the data file.
    """
    figures: Figures = {}
    for name, measure in measurements.items():
        _print([f"-- {name}"])
        began = time.monotonic()
        for measured in measure(cloud):
            figures |= measured
            _print(report.table(measured))
            if data_file:
                report.store(report.rows_of(measured), data_file=data_file)
        _print([f"({name}: {time.monotonic() - began:.0f} s)"])
    return figures


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one small size of everything, which is not stored"
    )
    parser.add_argument(
        "--only", nargs="+", choices=FULL, default=list(FULL), help="measure only these"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    measurements = QUICK if arguments.quick else {name: FULL[name] for name in arguments.only}
    with tempfile.TemporaryDirectory() as folder, emulators(Path(folder)) as cloud:
        run(measurements, cloud, None if arguments.quick else report.DATA)
    report.draw()


if __name__ == "__main__":
    main()
