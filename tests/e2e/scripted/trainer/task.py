"""A trainer without a framework, for tests of everything around it: takes steps, one a line, and ends with 0.

It keeps its progress in its home directory, so that a restart in the same VM goes on and one on another VM begins anew.
"""

import argparse
import json
import os
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--job-dir", default="")
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    progress = Path.home() / "progress"
    done = int(progress.read_text()) if progress.exists() else 0
    print(f"{task['type']} {task['index']} begins after step {done}, job dir {options.job_dir}", flush=True)
    for step in range(done + 1, options.steps + 1):
        time.sleep(options.step_seconds)
        progress.write_text(str(step))
        print(f"step {step}/{options.steps}", flush=True)


if __name__ == "__main__":
    main()
