"""A training program of the smoke test: it prints facts about its VM and runs until the object
FOLDER/finish exists.

    python -m probe.task --mark WORD --job-dir gs://BUCKET/FOLDER

It uses the standard library only. A line `smoke-fact NAME VALUE` is a fact. `smoke-line WORD` is
printed once by each VM. Worker 0 kills itself once. The object FOLDER/finish ends the program with
status 0.
"""

import argparse
import json
import os
import signal
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

POLL_S = 2.0  # between two looks for the object `finish`
STORAGE = "https://storage.googleapis.com/storage/v1/b"
METADATA_HOST = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
METADATA = f"http://{METADATA_HOST}/computeMetadata/v1/instance"


def metadata(path: str) -> str:
    """Return a value of the metadata server, such as that of `maintenance-event`."""
    request = urllib.request.Request(f"{METADATA}/{path}", headers={"Metadata-Flavor": "Google"})
    # The metadata server is never reached through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        return response.read().decode()


def object_status(bucket: str, name: str) -> int:
    """Return the HTTP status of a read of the object's metadata with the VM's own identity."""
    token = json.loads(metadata("service-accounts/default/token"))["access_token"]
    url = f"{STORAGE}/{bucket}/o/{quote(name, safe='')}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def is_first(name: str) -> bool:
    """Return True once on each VM: a round starts the programs of all VMs again."""
    marker = Path.home() / name
    was_there = marker.exists()
    marker.touch()
    return not was_there


def kill_once(task: dict) -> None:
    """Kill this process in the first incarnation of worker 0, as a crash of native code would."""
    if (task["type"], task["index"]) == ("worker", 0) and is_first("killed"):
        print("killing myself with SIGKILL", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mark", required=True)
    parser.add_argument("--job-dir", required=True)
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    bucket, _, folder = options.job_dir[len("gs://") :].partition("/")
    folder = folder.rstrip("/")
    if task["index"] == 0 and task["type"] in ("chief", "master"):
        if is_first("printed"):
            print(f"smoke-line {options.mark}", flush=True)
        print(
            f"smoke-fact missing_object {object_status(bucket, f'{folder}/no-such-object')}",
            flush=True,
        )
        print(
            f"smoke-fact missing_job_file {object_status(bucket, 'jobs/no-such-file.yaml')}",
            flush=True,
        )
    time.sleep(POLL_S)
    kill_once(task)
    event = "NONE"
    while object_status(bucket, f"{folder}/finish") != HTTPStatus.OK:
        now = metadata("maintenance-event").strip()
        if now != event:
            event = now
            if event == "NONE":
                continue
            print(f"smoke-fact maintenance_event {event}", flush=True)
        time.sleep(POLL_S)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
