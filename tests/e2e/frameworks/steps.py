"""Steps that all replicas take together, until the home directory of one of them has a file `finish`."""

import time
from pathlib import Path


def take_steps(total):
    """Call `total`, which sums a number over all replicas, until the sum shows that a replica has the file."""
    print("begins", flush=True)
    step = 0
    while not total(float((Path.home() / "finish").exists())):
        step += 1
        print(f"step {step}", flush=True)
        time.sleep(0.2)
