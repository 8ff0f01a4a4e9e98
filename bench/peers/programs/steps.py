"""The program of every system: it takes a step each 0.1 s, and writes the time of each of its moments.

`steps.py FILE [STEPS]` appends lines of JSON to FILE. It ends after STEPS steps, or when FILE.finish exists. At SIGTERM
it takes one more step, saves, and exits with status 0, as docs/save-on-notice.md asks.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def run(file: str, steps: int = 1_000_000, rank: str | None = None, beat: Callable[[], object] = lambda: None) -> None:
    """Take the steps. `beat` is called after each of them."""
    number = os.environ.get("RANK", "0") if rank is None else rank
    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(moment: str) -> None:
        line = {"at": time.time(), "rank": int(number), "pid": os.getpid(), "moment": moment}
        os.write(lines, (json.dumps(line) + "\n").encode())

    write("start")
    for step in range(1, steps + 1):
        if ASKED or Path(f"{file}.finish").exists():
            break
        time.sleep(0.1)
        write("step")
        print(f"step {step}", flush=True)
        beat()
    write("saved" if ASKED else "end")


ASKED: list[object] = []
"""What has asked the program to save: not empty as soon as a signal has."""


def ask(*signal: object) -> None:
    ASKED.append(signal)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ask)
    run(sys.argv[1], *map(int, sys.argv[2:]))
