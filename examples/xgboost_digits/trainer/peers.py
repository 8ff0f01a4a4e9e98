"""Brings XGBoost's replicas together, and ends this one when another is gone.

    rank 0      runs XGBoost's tracker, listens at MASTER_PORT, and tells whoever calls where the tracker is
    the others  call there until it answers, hold the line, and join the tracker

The line is there for what XGBoost does at the loss of a peer: now it raises an error, now it waits for ever, now it
crashes in the clean-up (SIGSEGV), as if the fault were its own. A line that closes without a goodbye says so at once:
whoever hears it ends with status 1 and a ConnectionResetError, its own lines close, and so all replicas start again.

The tracker cannot be at MASTER_PORT itself: it binds without SO_REUSEADDR, and for a minute after a loss would fail.
"""

import contextlib
import os
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

from xgboost import collective
from xgboost.tracker import RabitTracker

HELLO, GOODBYE = b"!", b"."
CALL_S = 1.0
HEARING_S = 5.0
# A VM that vanishes closes nothing: silence for KEEPALIVE_S * (1 + KEEPALIVE_PROBES) seconds counts as its end.
KEEPALIVE_S, KEEPALIVE_PROBES = 10, 3


@contextlib.contextmanager
def together(wait_s: float) -> Iterator[None]:
    """Let XGBoost work with all replicas, waiting so long for late ones; alone, do nothing."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world_size == 1:
        yield
        return
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    lines: list[socket.socket] = []
    threading.excepthook = lambda failed: leave(failed.exc_value)
    if rank == 0:
        tracker = RabitTracker(world_size, socket.gethostbyname(host), sortby="task", timeout=int(wait_s))
        tracker.start()
        where = tracker.worker_args()
        server = socket.create_server(("", port))
        threading.Thread(target=answer, args=(server, where["dmlc_tracker_port"], lines), daemon=True).start()
    else:
        where = {"dmlc_tracker_uri": host, "dmlc_tracker_port": call(host, port, lines, wait_s)}
    try:
        collective.init(**where, dmlc_task_id=f"{rank:06}", dmlc_timeout=int(wait_s))
        yield
    except Exception as error:  # noqa: BLE001 - told, and then left with: see the top
        time.sleep(HEARING_S)  # were it for a peer's loss, a line would say so first
        leave(error)
    for line in lines:
        with contextlib.suppress(OSError):  # it has said goodbye, and is gone
            line.sendall(GOODBYE)
    collective.finalize()
    if rank == 0:
        tracker.wait_for()


def answer(server: socket.socket, tracker_port: int, lines: list[socket.socket]) -> None:
    """In a thread of rank 0: greet every caller."""
    while True:
        line, _ = server.accept()
        threading.Thread(target=greet, args=(line, tracker_port, lines), daemon=True).start()


def greet(line: socket.socket, tracker_port: int, lines: list[socket.socket]) -> None:
    """In a thread of its own: tell the tracker's port. A caller that has understood it is a peer from now on."""
    reader = line.makefile("rb")
    try:
        line.sendall(f"{tracker_port}\n".encode())
        is_peer = reader.read(1) == HELLO
    except OSError:
        is_peer = False
    if is_peer:
        lines.append(line)
        listen(line, reader)


def call(host: str, port: int, lines: list[socket.socket], wait_s: float) -> int:
    """Return the tracker's port, once rank 0 is there to tell: it may be on its way to a new VM."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            line = socket.create_connection((host, port), timeout=CALL_S)
            reader = line.makefile("rb")
            tracker_port = int(reader.readline())
            line.sendall(HELLO)
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(CALL_S)
        else:
            line.settimeout(None)
            lines.append(line)
            threading.Thread(target=listen, args=(line, reader), daemon=True).start()
            return tracker_port


def listen(line: socket.socket, reader: Any) -> None:
    """In a thread of its own: end this replica when the other end closes without a goodbye."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    try:
        is_over = reader.read(1) == GOODBYE
    except OSError:
        is_over = False
    if not is_over:
        raise ConnectionResetError("a peer is gone")


def leave(error: BaseException | None) -> NoReturn:
    """End now with this error, past XGBoost's own clean-up."""
    traceback.print_exception(error)
    os._exit(1)
