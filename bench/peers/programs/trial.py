"""The benchmark's program for a search of hyperparameters: one trial, which takes a second if
nothing else is asked. Its accuracy is a function of its rate.
"""

import argparse
import json
import os
import time
from pathlib import Path


def run(file: str, rate: float, seconds: float = 1.0) -> float:
    """Append the moments of the trial to the file, and return its accuracy."""
    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for moment in ("start", "end"):
        line = {"at": time.time(), "rank": 0, "pid": os.getpid(), "moment": moment}
        os.write(lines, (json.dumps(line) + "\n").encode())
        time.sleep(seconds if moment == "start" else 0)
    return 1 - (rate - 0.3) ** 2


def main() -> None:
    """Report the accuracy as cloudml-hypertune does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    options, _ = parser.parse_known_args()
    report = {
        os.environ["CLOUD_ML_HP_METRIC_TAG"]: str(run(options.file, options.rate, options.seconds)),
        "global_step": "1",
    }
    with Path(os.environ["CLOUD_ML_HP_METRIC_FILE"]).open("w") as metrics:
        print(
            json.dumps(
                {**report, "timestamp": time.time(), "trial": os.environ["CLOUD_ML_TRIAL_ID"]}
            ),
            file=metrics,
        )


if __name__ == "__main__":
    main()
