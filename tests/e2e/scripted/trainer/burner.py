"""A trainer that uses one core for some seconds on worker 1, and nothing on the other replicas.

It prints its CPU time every second: other programs of the machine use the core, too.
"""

import argparse
import json
import os
import time


def burn(until: float) -> None:
    while time.time() < until:
        sum(range(10_000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--job-dir")
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    is_burner = (task["type"], int(task["index"])) == ("worker", 1)
    begin = time.time()
    for second in range(1, options.seconds + 1):
        burn(begin + second) if is_burner else time.sleep(max(begin + second - time.time(), 0))
        print(
            f"used {time.process_time():.3f} s of {time.time() - begin:.3f} s at {time.time():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
