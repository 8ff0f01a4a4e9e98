"""Run one history and print its trace: `python -m trainmaster_local.simulator --seed N
[--profile NAME]`.

Exit status 1: an invariant did not hold; the last line says which.
"""

from __future__ import annotations

import argparse
import sys

from trainmaster_local.simulator.history import History
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.scenarios.fault_profiles import EVERYTHING, PROFILES
from trainmaster_local.simulator.scenarios.generator import draw_scenario, rng_of


def main() -> int:
    """Run the history that the command line names, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m trainmaster_local.simulator", description=__doc__
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--profile", choices=sorted(PROFILES), default=EVERYTHING.name)
    options = parser.parse_args()
    profile = PROFILES[options.profile]
    rng = rng_of(options.seed, profile)
    history = History(draw_scenario(rng, profile), rng)
    failure: ViolationError | None = None
    try:
        history.run()
    except ViolationError as violation:
        failure = violation
    finally:
        sys.stdout.write(history.context.format_trace() + "\n")
    sys.stdout.write(f"{failure or history.outcome(digest=True)}\n")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
