"""Connect XGBoost's replicas, and exit as soon as another replica is lost.

    rank 0            runs XGBoost's tracker, listens on MASTER_PORT, and sends the tracker's port to each connection
    other replicas    connect to MASTER_PORT until rank 0 answers, keep the connection open, and join the tracker

XGBoost alone does not handle the loss of a peer reliably: it raises an error, waits forever, or crashes in its clean-up
(SIGSEGV), as if the failure were its own. These connections detect the loss at once. If one closes without the final
message, the replica at its other end exits with status 1 and a ConnectionResetError. This closes its own connections,
so all replicas exit and are restarted.

The tracker cannot listen on MASTER_PORT itself: it binds without SO_REUSEADDR, which fails for a minute after a loss.
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

CONNECTED, FINISHED = b"!", b"."
CONNECT_S = 1.0
LOSS_DETECTION_S = 5.0
# A VM that vanishes does not close its connections. They time out after KEEPALIVE_S * (1 + KEEPALIVE_PROBES) seconds.
KEEPALIVE_S, KEEPALIVE_PROBES = 10, 3


@contextlib.contextmanager
def connected_replicas(wait_s: float) -> Iterator[None]:
    """Run XGBoost's collectives over all replicas; wait up to `wait_s` seconds for late ones. Do nothing if alone."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world_size == 1:
        yield
        return
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    connections: list[socket.socket] = []
    tracker: RabitTracker | None = None
    threading.excepthook = lambda failed: exit_with(failed.exc_value)
    if rank == 0:
        tracker = RabitTracker(world_size, socket.gethostbyname(host), sortby="task", timeout=int(wait_s))
        tracker.start()
        tracker_arguments = tracker.worker_args()
        server = socket.create_server(("", port))
        tracker_port = tracker_arguments["dmlc_tracker_port"]
        threading.Thread(target=accept_all, args=(server, tracker_port, connections), daemon=True).start()
    else:
        tracker_arguments = {
            "dmlc_tracker_uri": host,
            "dmlc_tracker_port": connect(host, port, connections, wait_s),
        }
    try:
        collective.init(**tracker_arguments, dmlc_task_id=f"{rank:06}", dmlc_timeout=int(wait_s))
        yield
    except Exception as error:  # noqa: BLE001 - printed by exit_with
        time.sleep(LOSS_DETECTION_S)  # if a peer was lost, its connection ends this process first
        exit_with(error)
    for connection in connections:
        with contextlib.suppress(OSError):  # the peer has finished and exited
            connection.sendall(FINISHED)
    collective.finalize()
    if tracker is not None:
        tracker.wait_for()


def accept_all(server: socket.socket, tracker_port: int, connections: list[socket.socket]) -> None:
    """Accept every connection. Runs in a thread of rank 0."""
    while True:
        connection, _ = server.accept()
        threading.Thread(target=greet, args=(connection, tracker_port, connections), daemon=True).start()


def greet(connection: socket.socket, tracker_port: int, connections: list[socket.socket]) -> None:
    """Send the tracker's port, and watch a peer that has confirmed it. Runs in a thread per connection."""
    reader = connection.makefile("rb")
    try:
        connection.sendall(f"{tracker_port}\n".encode())
        is_peer = reader.read(1) == CONNECTED
    except OSError:
        is_peer = False
    if is_peer:
        connections.append(connection)
        watch(connection, reader)


def connect(host: str, port: int, connections: list[socket.socket], wait_s: float) -> int:
    """Connect to rank 0 and return the tracker's port. Retry for `wait_s` seconds: rank 0 may be getting a new VM."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=CONNECT_S)
            reader = connection.makefile("rb")
            tracker_port = int(reader.readline())
            connection.sendall(CONNECTED)
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(CONNECT_S)
        else:
            connection.settimeout(None)
            connections.append(connection)
            threading.Thread(target=watch, args=(connection, reader), daemon=True).start()
            return tracker_port


def watch(connection: socket.socket, reader: Any) -> None:
    """End this replica if the connection closes before the peer has finished. Runs in a thread per connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    try:
        has_finished = reader.read(1) == FINISHED
    except OSError:
        has_finished = False
    if not has_finished:
        raise ConnectionResetError("a peer is gone")


def exit_with(error: BaseException | None) -> NoReturn:
    """Print the error's traceback and exit at once with status 1, without XGBoost's clean-up."""
    traceback.print_exception(error)
    os._exit(1)
