"""A trainer that saves on SIGUSR1 as many programs do: a flag, which it reads after each step.

All replicas take a step together at each full second. Each one saves its step, and when it was
signalled, as an object below `--job-dir`, and exits with status 0. The next round begins after the
chief's saved step.
"""

import argparse
import json
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request

from trainer.task import Peers

signalled: list[float] = []


def saved(uri: str, rank: str, content: "str | None" = None) -> str:
    """Return what the rank has saved, after replacing it by `content`."""
    bucket, _, folder = uri.removeprefix("gs://").partition("/")
    name, host = (
        urllib.parse.quote(f"{folder}/saved-{rank}", safe=""),
        os.environ["STORAGE_EMULATOR_HOST"],
    )
    if content is not None:
        url = f"{host}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        urllib.request.urlopen(
            urllib.request.Request(url, content.encode(), {"Content-Type": "text/plain"})
        ).read()
        return content
    try:
        return (
            urllib.request.urlopen(f"{host}/storage/v1/b/{bucket}/o/{name}?alt=media")
            .read()
            .decode()
        )
    except urllib.error.HTTPError:
        return "0"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir")
    options = parser.parse_args()
    signal.signal(signal.SIGUSR1, lambda *_: signalled.append(time.time()))
    config, rank = json.loads(os.environ["TF_CONFIG"]), os.environ["RANK"]
    peers = Peers(config, int(saved(options.job_dir, "0").split()[0]))
    print(f"rank {rank} of {os.environ['WORLD_SIZE']} begins after step {peers.done},", flush=True)
    step = peers.done
    while True:
        time.sleep(1 - time.time() % 1)
        peers.meet()
        step += 1
        print("step", step, flush=True)
        if signalled:
            saved(options.job_dir, rank, f"{step} {signalled[0]:.3f}")
            print(f"saved step {step}", flush=True)
            return


if __name__ == "__main__":
    main()
