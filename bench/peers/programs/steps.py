"""The program of every system: it takes a step each 0.1 s, and writes the time of each of its
moments: its start, its steps, and its end.

`steps.py FILE [FEWEST]` appends lines of JSON to FILE. It ends when FILE.finish exists. At SIGTERM
it takes one more step, saves, and exits with status 0, as docs/save-on-notice.md asks.

With FEWEST, two ranks share the work of a step, for which one alone needs 0.2 s. They meet after
each step, and one fails when the other has gone, as in a collective. Launchers know how few ranks
may go on: the program does not ask.
"""

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

STEP_S = 0.1
"""Time that a step takes; with FEWEST, a rank alone needs twice as long."""
RETRY_S = 0.02
"""Pause before another try to reach the other rank."""
ADDRESS_BYTES = 90
"""Bytes of the file's path that tell one run from another. Linux allows 107 in a socket's name."""


def meet(file: str, rank: int) -> Connection:
    """Return a connection between the two ranks."""
    address = "\0" + file[-ADDRESS_BYTES:]  # of no file: it goes with its process
    if rank == 0:
        with Listener(address) as listener:
            return listener.accept()
    while True:
        with suppress(ConnectionRefusedError):
            return Client(address)
        time.sleep(RETRY_S)


def run(file: str, fewest: str = "", beat: Callable[[], object] = lambda: None) -> None:
    """Take the steps. `beat` is called after each of them."""
    rank, ranks = (
        int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1))
    )
    lines = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(moment: str) -> None:
        line = {"at": time.time(), "rank": rank, "pid": os.getpid(), "moment": moment}
        os.write(lines, (json.dumps(line) + "\n").encode())

    write("start")
    peer = meet(file, rank) if fewest and ranks > 1 else None
    for step in itertools.count(1):
        if ASKED or Path(f"{file}.finish").exists():
            break
        time.sleep(2 * STEP_S / ranks if fewest else STEP_S)
        if peer:
            peer.send(step)
            peer.recv()
        write("step")
        print(f"step {step}", flush=True)
        beat()
    write("saved" if ASKED else "end")


ASKED: list[object] = []
"""Signals that have asked the program to save; empty: none has."""


def ask(*signal: object) -> None:
    ASKED.append(signal)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ask)
    run(*sys.argv[1:])
