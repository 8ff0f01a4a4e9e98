"""The command line on an installation in memory: the real flows, and Cloud Logging's emulator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from shared import settings
from shared.errors import PermanentError
from shared.flows import submit
from shared.flows.record import Deps
from shared.gcp.cloud_logging import CloudLogging
from shared.memory.bus import MemoryBus
from shared.memory.objects import MemoryObjects
from shared.memory.store import MemoryStore
from shared.messaging import topics
from shared.wiring import core_services, log_reader, objects
from tests.integration.logging.cloud import PROJECT, Cloud


@dataclass(frozen=True)
class Installation:
    """`run` is one command. What is published is handled on a thread, as the function would."""

    store: MemoryStore
    bus: MemoryBus
    objects: MemoryObjects
    cloud: Cloud

    @property
    def deps(self) -> Deps:
        return Deps(self.store, self.bus, clock=lambda: datetime.now(UTC), sleep=lambda _: None)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    def serve(self, over: threading.Event) -> None:
        while not over.is_set():
            message = self.bus.take(timeout_s=0.05)
            if message is None or message.topic != topics.SUBMIT:
                continue
            try:
                submit.handle(message.data, message.attributes.get("source"), self.deps)
            except PermanentError:
                continue  # recorded, and in the dead letter


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    cloud = Cloud(tmp_path, clock_ns=lambda: int(datetime.now(UTC).timestamp() * 1e9))
    made = Installation(MemoryStore(), MemoryBus(), MemoryObjects(), cloud)
    with cloud.serving() as address:
        monkeypatch.setenv("TRAINMASTER_PROJECT", PROJECT)
        monkeypatch.setenv("TRAINMASTER_BUCKET", "the-bucket")
        monkeypatch.setenv("TRAINMASTER_LOGGING_ENDPOINT", address)
        settings.settings.cache_clear()
        logging = CloudLogging(PROJECT, address, timeout_s=30)
        replaced: list[tuple[object, str, Callable[[], object]]] = [
            (core_services, "store", lambda: made.store),
            (core_services, "bus", lambda: made.bus),
            (core_services, "deps", lambda: made.deps),
            (objects, "objects", lambda: made.objects),
            (log_reader, "logging", lambda: logging),
        ]
        for module, name, value in replaced:
            monkeypatch.setattr(module, name, value)
        over = threading.Event()
        function = threading.Thread(target=made.serve, args=(over,))
        function.start()
        yield made
        over.set()
        function.join()
        logging.close()
    cloud.entries.close()
    settings.settings.cache_clear()
