"""The Cloud Scheduler emulator inside the test process, with a clock that the test sets, and a
target that records.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.serving import serving
from tests.support.stack import eventually
from trainmaster_emulators.rest.server import listen
from trainmaster_emulators.scheduler.clock import Clock
from trainmaster_emulators.scheduler.dispatch import Dispatcher
from trainmaster_emulators.scheduler.execution import ScheduledJob
from trainmaster_emulators.scheduler.job_store import JobStore
from trainmaster_emulators.scheduler.server import SchedulerServer

PROJECT = "my-project"
PARENT = f"projects/{PROJECT}/locations/us-central1"
START = datetime(2026, 11, 21, 2, 59, 30, tzinfo=UTC)


@dataclass
class Received:
    """A request that the target has received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Target:
    """An HTTP server that records its requests. It also takes the place of the Pub/Sub emulator."""

    statuses: list[int] = field(default_factory=list)
    """Status of each response; 200 when the list is used up."""
    received: list[Received] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """Responses wait until it is set."""
    url: str = ""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        target = self

        class Handler(BaseHTTPRequestHandler):
            def _accept(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                target.received.append(Received(self.command, self.path, dict(self.headers), body))
                target.gate.wait(30)
                self.send_response(target.statuses.pop(0) if target.statuses else 200)
                self.send_header("Content-Length", "2")
                self.send_header("Location", target.url)
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = _accept

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler


@dataclass
class Emulator:
    """The emulator of Cloud Scheduler, which runs on the stored jobs and on the test's clock."""

    folder: Path
    target: Target
    now: datetime = START
    address: str = ""

    def open(self) -> None:
        """Start the emulator's parts on the stored jobs, as after a restart."""
        self.store = JobStore(self.folder / "jobs.sqlite")
        dispatcher = Dispatcher(self.target.url.removeprefix("http://"), "secret")
        self.clock = Clock(self.store, dispatcher, lambda: self.now)
        self.server = SchedulerServer(PROJECT, self.store, self.clock, dispatcher, lambda: self.now)

    def close(self) -> None:
        self.clock.stop()
        self.store.close()

    def get(self, name: str) -> ScheduledJob:
        return self.store.get(f"{PARENT}/jobs/{name}")

    def fire(self, at: datetime) -> None:
        """Set the clock, start what is due, and wait for the ends of these attempts."""
        self.now = at
        names = [scheduled.job.name for scheduled in self.store.due(at)]
        before = {name: self.store.get(name).job.last_attempt_time for name in names}
        self.clock.start_due()
        eventually(
            lambda: all(
                self.store.get(name).job.last_attempt_time != at for name, at in before.items()
            )
        )


@pytest.fixture
def target() -> Iterator[Target]:
    """The server that jobs of the scheduler call."""
    target = Target()
    target.gate.set()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), target.handler())) as address:
        target.url = address
        yield target


@pytest.fixture
def emulator(tmp_path: Path, target: Target) -> Iterator[Emulator]:
    """The emulator of Cloud Scheduler, over HTTP."""
    emulator = Emulator(tmp_path, target)
    emulator.open()
    with serving(listen("127.0.0.1", 0, emulator.server)) as emulator.address:
        yield emulator
    emulator.close()
