"""A member of a synchronous job of the smoke test: it says when it was asked to save, and hangs its
VM on request.

    python -m probe.gang --job-dir gs://BUCKET/FOLDER

After SIGUSR1 it prints `smoke-saved TASK-INDEX STEP SECONDS`, with the time of the signal since
1970, and exits with status 0. SIGTERM ends it without a line. The object FOLDER/hang-ID stops the
agent of the VM with this numeric id, which no replacement has. FOLDER/finish ends the program with
status 0.
"""

import argparse
import json
import os
import signal
import time
from http import HTTPStatus

from probe.task import metadata, object_status

STEP_S = 1.0
STEPS_PER_LOOK = 3

asked: "list[float]" = []


def main() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(time.time()))
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir", required=True)
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    bucket, _, folder = options.job_dir[len("gs://") :].partition("/")
    folder = folder.rstrip("/")
    hang = f"{folder}/hang-{metadata('id').strip()}"
    is_hung = False
    step = 0
    while True:
        if step % STEPS_PER_LOOK == 0:
            if object_status(bucket, f"{folder}/finish") == HTTPStatus.OK:
                print("finished", flush=True)
                return
            if not is_hung and object_status(bucket, hang) == HTTPStatus.OK:
                print("stopping the agent of this VM", flush=True)
                os.kill(os.getppid(), signal.SIGSTOP)  # the agent, whose child this program is
                is_hung = True
        time.sleep(STEP_S)
        step += 1
        if asked:
            name = f"{task['type']}-{task['index']}"
            print(f"smoke-saved {name} {step} {asked[0]:.3f}", flush=True)
            return


if __name__ == "__main__":
    main()
