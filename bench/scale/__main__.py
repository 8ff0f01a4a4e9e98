"""`python -m bench.scale`: print what an installation with many jobs uses, and how long its jobs wait."""

from __future__ import annotations

import argparse
import logging
import sys

from bench.scale.cloud import REFUSED_LIST_S, REFUSED_S
from bench.scale.run import run
from bench.scale.scenario import Scenario


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--regions", type=int, default=10)
    parser.add_argument("--changes-per-minute", type=int, default=1500)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    usage = run(Scenario(arguments.jobs, arguments.replicas, arguments.regions, arguments.changes_per_minute))
    for name in sorted(usage.counts):
        sys.stdout.write(
            f"{name:32s} {usage.total(name):10,d} in all {usage.peak_per_minute(name):10,d} in one minute\n"
        )
    sys.stdout.write(f"changes refused for {REFUSED_S:.0f} s   {usage.refused:10,d}\n")
    sys.stdout.write(f"lists refused for {REFUSED_LIST_S:.0f} s     {usage.refused_lists:10,d}\n")
    sys.stdout.write(f"longest delivery           {usage.deliveries_max_s:10.1f} s\n")
    for name, values in (("until a job runs", usage.running_s), ("until a VM is deleted", usage.deleted_s)):
        ordered = sorted(values)
        median, last = ordered[len(ordered) // 2], ordered[-1]
        sys.stdout.write(f"{name:26s} {median:10.1f} s (median) {last:10.1f} s (longest)\n")


if __name__ == "__main__":
    main()
