"""Measure, print and store the figures. `make bench` runs everything, `make bench-quick` one small size."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from bench import delivery, gangs, job_cost, many_jobs, report, throughput, warm_events
from bench.cloud import Emulators, emulators
from bench.figures import Figures

SIZES: Final = (1, 10, 100, 1000)
QUICK_SIZES: Final = (3, 6)
JOB_SIZES: Final = (1, 10, 100)
"""The cost of a job is exactly linear in its size, so larger sizes would show nothing new."""

Measure = Callable[[Emulators], Iterable[Figures]]
"""Returns the figures in one or several parts, each as soon as it has been measured."""

FULL: Final[dict[str, Measure]] = {
    "warm-events": lambda cloud: [warm_events.measure(cloud, 60)],
    "throughput": lambda cloud: [throughput.measure(cloud, 12)],
    "delivery": lambda cloud: [delivery.measure(cloud, 60)],
    "job-cost": lambda cloud: [job_cost.measure(cloud, JOB_SIZES)],
    "queue": lambda cloud: many_jobs.measure_queue(cloud, SIZES),
    "sweep": lambda cloud: many_jobs.measure_sweep(cloud, SIZES),
    **{f"gang-{size}": partial(gangs.measure, sizes=[size]) for size in SIZES},
}
QUICK: Final[dict[str, Measure]] = {
    "warm-events": lambda cloud: [warm_events.measure(cloud, 3)],
    "throughput": lambda cloud: [throughput.measure(cloud, 1)],
    "delivery": lambda cloud: [delivery.measure(cloud, 3)],
    "job-cost": lambda cloud: [job_cost.measure(cloud, QUICK_SIZES)],
    "queue": lambda cloud: many_jobs.measure_queue(cloud, [3]),
    "sweep": lambda cloud: many_jobs.measure_sweep(cloud, [3]),
    "gang": lambda cloud: gangs.measure(cloud, [3]),
}

FIGURE_OF: Final = {
    "warm-events": "warm event: failed exit",
    "throughput": "throughput: 8 threads",
    "delivery": "delivery: publish to committed",
    "job-cost": "job cost: reads per job",
    "queue": f"queue: reads per job J={SIZES[-1]}",
    "sweep": f"sweep: reads per job J={SIZES[-1]}",
    **{f"gang-{size}": f"end: time N={size}" for size in SIZES},
}
"""Measurement → one of its figures. If the figure is missing, the measurement has not been made."""


def missing_measurements(figures: Figures) -> list[str]:
    """Return the measurements without which docs/benchmarks.md would lose figures."""
    return [name for name in FULL if FIGURE_OF[name] not in figures]


def run(measurements: dict[str, Measure], cloud: Emulators, figures: Figures, path: Path = report.JSON) -> None:
    """Add the figures of each measurement to `figures`, print them, and store all of them after each part."""
    for name, measure in measurements.items():
        _print([f"-- {name}"])
        for measured in measure(cloud):
            figures |= measured
            _print(report.table(measured))
            report.write_json(figures, path)


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small size of everything")
    parser.add_argument("--only", nargs="+", choices=FULL, help="measure only these; keep the other stored figures")
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.md and its plots")
    parser.add_argument("--check", action="store_true", help="fail if a limit is exceeded")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    measurements = QUICK if arguments.quick else FULL
    figures = report.read_json() if arguments.only else {}
    if arguments.only:
        measurements = {name: FULL[name] for name in arguments.only}
    missing = [name for name in missing_measurements(figures) if name not in measurements]
    if arguments.page and arguments.quick:
        parser.error("--page needs all sizes: leave out --quick")
    if arguments.page and missing:
        parser.error(
            f"--page needs all figures, and build/bench.json has none of {', '.join(missing)}: run `make bench`"
        )
    with tempfile.TemporaryDirectory() as folder, emulators(Path(folder)) as cloud:
        run(measurements, cloud, figures)
    if arguments.page:
        report.write_page(figures)
    exceeded = [name for name, figure in figures.items() if not figure.is_within_limits]
    return 1 if arguments.check and exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
