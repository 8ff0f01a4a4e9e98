"""A function that runs from its archive, as on Cloud Functions, and the memory that it needs."""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from bench.cold_starts import memory_mib, send, started
from infra.stage import stage


class Function:
    """The running function, and the most memory that it needed."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid, self._port = pid, port
        self.peak_mib = 0.0

    def deliver(self, data: bytes) -> None:
        """Push a message to the function, and wait until it is acknowledged."""
        message = {"data": base64.b64encode(data).decode(), "attributes": {}, "messageId": "1"}
        body = json.dumps(
            {"message": message, "subscription": "projects/p/subscriptions/s"}
        ).encode()
        with self._watched():
            assert send(self._port, "POST", "/", {"Content-Type": "application/json"}, body) == 204

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Look at the memory 50 times a second."""
        is_done = Event()

        def watch() -> None:
            while not is_done.wait(0.02):
                self.peak_mib = max(self.peak_mib, memory_mib(self._pid))

        watcher = Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            is_done.set()
            watcher.join()


@contextmanager
def running_function(name: str, folder: Path, variables: dict[str, str]) -> Iterator[Function]:
    """Run the function with these environment variables for the length of the block.

    `folder`: an empty one for its archive.
    """
    with zipfile.ZipFile(stage(folder / "stage")[name]) as archive:
        archive.extractall(folder / name)
    environment = {"PATH": "/usr/bin:/bin", **variables}
    with started(folder / name, name, environment) as (pid, port):
        yield Function(pid, port)
