"""XGBoost's collectives over all replicas of a job, which RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT describe.

    rank 0            runs XGBoost's tracker
                      sends its address to each connection to MASTER_PORT
    other replicas    connect to MASTER_PORT until rank 0 answers, and join the tracker

The tracker has another port after each start. It cannot listen on MASTER_PORT itself: it binds
without SO_REUSEADDR, which fails for a minute after the loss of a peer. A replica that loses a peer
raises XGBoostError in its next collective.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from xgboost import collective
from xgboost.tracker import RabitTracker

RETRY_S = 1.0
"""Pause between two connections to rank 0, and longest wait for one."""


@contextlib.contextmanager
def connected_replicas(wait_s: float) -> Iterator[None]:
    """Run XGBoost's collectives over all replicas; wait up to `wait_s` seconds for late ones.

    Do nothing if alone.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    if world_size == 1:
        yield
        return
    host = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    tracker: RabitTracker | None = None
    if rank == 0:
        tracker = RabitTracker(
            world_size, socket.gethostbyname(host), sortby="task", timeout=int(wait_s)
        )
        tracker.start()
        arguments = tracker.worker_args()
        server = socket.create_server(("", port))
        threading.Thread(target=answer_all, args=(server, arguments), daemon=True).start()
    else:
        arguments = ask(host, port, wait_s)
    # Its end tells the peers, also after an error. Without that, they may wait, or crash in
    # XGBoost's clean-up.
    with collective.CommunicatorContext(
        **arguments, dmlc_task_id=f"{rank:06}", dmlc_timeout=int(wait_s)
    ):
        yield
    if tracker is not None:
        tracker.wait_for()


def answer_all(server: socket.socket, arguments: Mapping[str, Any]) -> None:
    """Send the tracker's address to everyone who connects. Runs in a thread of rank 0."""
    while True:
        with server.accept()[0] as connection, contextlib.suppress(OSError):
            connection.sendall(json.dumps(arguments).encode())


def ask(host: str, port: int, wait_s: float) -> dict[str, Any]:
    """Return the tracker's address. Retry for `wait_s` seconds: rank 0 may be getting a VM."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            with socket.create_connection((host, port), timeout=RETRY_S) as connection:
                return {**json.load(connection.makefile()), "dmlc_tracker_uri": host}
        except (OSError, ValueError):  # it does not listen yet, or was ended while it answered
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
