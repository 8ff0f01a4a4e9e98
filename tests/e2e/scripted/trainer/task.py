"""A trainer without a framework, for tests of everything around it: takes steps, one a line, and ends with 0.

It keeps its progress in its home directory, so that a restart in the same VM goes on and one on another VM begins anew.
`--do SEAT:ACTION@STEP` lets a replica do something before that step, in every life that comes to it.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path


def act(action: str) -> None:
    if action == "bug":
        raise ValueError("images of shape (8, 8) expected")
    if action == "import":
        import no_such_module  # noqa: F401
    elif action == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(b"x" * (1 << 24)))
    elif action.startswith("exit="):
        sys.exit(int(action[5:]))
    else:
        os.kill(os.getpid(), signal.Signals[action])
        time.sleep(5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--do", default="")
    parser.add_argument("--job-dir", default="")
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    who, _, what = options.do.partition(":")
    action, _, at_step = what.partition("@")
    progress = Path.home() / "progress"
    done = int(progress.read_text()) if progress.exists() else 0
    print(f"{task['type']} {task['index']} begins after step {done}, job dir {options.job_dir}", flush=True)
    for step in range(done + 1, options.steps + 1):
        if who == f"{task['type']}-{task['index']}" and step == int(at_step):
            act(action)
        time.sleep(options.step_seconds)
        progress.write_text(str(step))
        print(f"step {step}/{options.steps}", flush=True)


if __name__ == "__main__":
    main()
