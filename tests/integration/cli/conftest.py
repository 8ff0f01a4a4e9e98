"""An installation in memory for the command line: the real flows, and the emulator of Cloud
Logging.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.integration.logging.cloud import PROJECT, Cloud
from trainmaster import settings
from trainmaster.cli import main
from trainmaster.cli.main import app
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.gcp.log_entries import LogEntries
from trainmaster.messaging import topics
from trainmaster.wiring import core_services, log_reader, objects
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore

RunMain = Callable[..., tuple[object, str]]
"""Runs the console script with these arguments; returns its exit status and standard error."""


@dataclass(frozen=True)
class Installation:
    """State and ports of the installation.

    A thread handles submitted jobs, as the function submit does.
    """

    store: MemoryStore
    bus: MemoryBus
    objects: MemoryObjects
    cloud: Cloud

    @property
    def deps(self) -> CreationDeps:
        return CreationDeps(
            self.store, self.bus, clock=lambda: datetime.now(UTC), sleep=lambda _: None
        )

    def run(self, *arguments: str) -> Result:
        """Run one command."""
        return CliRunner().invoke(app, list(arguments))

    def handle_submissions(self, stop: threading.Event) -> None:
        """Handle submitted jobs as the function `submit` does, until the event is set."""
        while not stop.is_set():
            message = self.bus.take(timeout_s=0.05)
            if message is None or message.topic != topics.SUBMIT:
                continue
            try:
                submit.handle(message.data, message.attributes.get("source"), self.deps)
            except PermanentError:
                continue  # the flow has recorded the rejection


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """An installation in memory that handles submitted jobs, for commands in this process."""
    cloud = Cloud(tmp_path, clock_ns=lambda: int(datetime.now(UTC).timestamp() * 1e9))
    result = Installation(MemoryStore(), MemoryBus(), MemoryObjects(), cloud)
    with cloud.serving() as address:
        monkeypatch.setenv("TRAINMASTER_PROJECT", PROJECT)
        monkeypatch.setenv("TRAINMASTER_BUCKET", "the-bucket")
        monkeypatch.setenv("TRAINMASTER_LOGGING_ENDPOINT", address)
        settings.settings.cache_clear()
        entries = LogEntries(PROJECT, address)
        replaced: list[tuple[object, str, Callable[[], object]]] = [
            (core_services, "store", lambda: result.store),
            (core_services, "bus", lambda: result.bus),
            (core_services, "deps", lambda: result.deps),
            (objects, "objects", lambda *_: result.objects),
            (log_reader, "log_entries", lambda *_: entries),
        ]
        for module, name, value in replaced:
            monkeypatch.setattr(module, name, value)
        stop = threading.Event()
        function = threading.Thread(target=result.handle_submissions, args=(stop,))
        function.start()
        yield result
        stop.set()
        function.join()
        entries.close()
    cloud.entries.close()
    settings.settings.cache_clear()


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunMain:
    """Run the console script itself, not only the command that it finds."""

    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["trainmaster", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main.run()
        return exit_info.value.code, capsys.readouterr().err

    return run
