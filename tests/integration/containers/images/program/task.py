"""A training program in a container: it connects to its peers in TF_CONFIG, and behaves as its
arguments say.

The chief listens at its own address and waits until every worker has greeted it; then all exit with
status 0.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--greeting", default="no greeting")
    parser.add_argument("--job-dir", default="")
    parser.add_argument("--exit", type=int, default=0, help="exit with this status")
    parser.add_argument(
        "--fail-once",
        metavar="OBJECT",
        help="exit with status 3 in the first incarnation, which creates this object",
    )
    parser.add_argument(
        "--eat", action="store_true", help="allocate memory until there is none left"
    )
    parser.add_argument("--for-ever", action="store_true", help="run until SIGTERM")
    options = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    task, cluster = config["task"], config["cluster"]
    print(
        f"{task['type']} {task['index']} says {options.greeting!r}, job dir {options.job_dir!r}",
        flush=True,
    )
    if options.eat:
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 20)))
    if options.fail_once and not exists_or_create(options.fail_once):
        return 3
    if options.for_ever:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("asked to end"))
        while True:
            time.sleep(1)
    if options.exit:
        sys.exit(options.exit)
    meet(task, cluster)
    return 0


def meet(task: dict[str, Any], cluster: dict[str, list[str]]) -> None:
    workers = len(cluster.get("worker", []))
    if not workers:
        return
    chief = (cluster.get("chief") or cluster.get("master") or cluster["worker"])[0]
    host, _, port = chief.rpartition(":")
    if task["type"] != "worker":
        greeted: set[str] = set()
        with socket.create_server((host, int(port))) as server:
            server.settimeout(TIMEOUT_S)
            while len(greeted) < workers:
                connection, _ = server.accept()
                with connection:
                    greeted.add(connection.recv(100).decode())
        print(f"greeted by {sorted(greeted)}", flush=True)
        return
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with socket.create_connection((host, int(port)), 5) as connection:
                connection.sendall(f"worker {task['index']}".encode())
                return
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def exists_or_create(name: str) -> bool:
    """Return whether the object exists; create it if it does not."""
    bucket, _, path = name.removeprefix("gs://").partition("/")
    base = os.environ["STORAGE_EMULATOR_HOST"]
    try:
        with urllib.request.urlopen(
            f"{base}/storage/v1/b/{bucket}/o/{path.replace('/', '%2F')}", timeout=30
        ):
            return True
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
    address = f"{base}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={path}"
    urllib.request.urlopen(
        urllib.request.Request(address, b"seen", method="POST"), timeout=30
    ).close()
    return False


if __name__ == "__main__":
    sys.exit(main())
