"""`python -m simulator --seed N [--profile NAME]`: one history, told line by line; the same every time."""

from __future__ import annotations

import argparse
import random
import sys

from simulator.history import History
from simulator.invariants.job_invariants import ViolationError
from simulator.scenarios.fault_profiles import EVERYTHING, PROFILES
from simulator.scenarios.generator import scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--profile", choices=sorted(PROFILES), default=EVERYTHING.name)
    asked = parser.parse_args()
    profile = PROFILES[asked.profile]
    rng = random.Random(f"{profile.name}/{asked.seed}")  # noqa: S311 - chance that repeats is the point
    history = History(scenario(rng, profile), rng)
    failure: ViolationError | None = None
    try:
        history.run()
    except ViolationError as violation:
        failure = violation
    finally:
        sys.stdout.write(history.context.trace() + "\n")
    sys.stdout.write(f"{failure or history.outcome(digest=True)}\n")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
