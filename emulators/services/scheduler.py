"""An emulator of Cloud Scheduler: publishes one message at regular intervals.

    python -m emulators.services.scheduler --pubsub HOST --project P --topic T --every SECONDS [--data JSON]

A failed publish is logged and skipped, as Cloud Scheduler does after its own retries.
"""

from __future__ import annotations

import argparse
import sys
import time

from emulators.services.pubsub import PubSub
from emulators.stack.loopback import CallError
from emulators.stack.processes import LOOPBACK
from emulators.stack.service import Service

NAME = "scheduler"


def service(pubsub: str, project: str, topic: str, every_s: float) -> Service:
    argv = [sys.executable, "-m", "emulators.services.scheduler", "--pubsub", pubsub, "--project", project]
    return Service(NAME, [*argv, "--topic", topic, "--every", f"{every_s:g}"], restartable=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="emulators.services.scheduler")
    parser.add_argument("--pubsub", default=f"{LOOPBACK}:8085")
    parser.add_argument("--project", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--every", type=float, required=True, help="seconds")
    parser.add_argument("--data", default="{}")
    options = parser.parse_args(argv)
    pubsub = PubSub(options.pubsub, options.project)
    while True:
        time.sleep(options.every)
        try:
            pubsub.publish(options.topic, options.data.encode())
        except (OSError, CallError) as error:
            sys.stderr.write(f"cannot publish to {options.topic}: {error}\n")


if __name__ == "__main__":
    sys.exit(main())
