"""Commands that read, while services of Google accept connections and answer nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields

import pytest
from typer.testing import CliRunner, Result

from tests.support.jobs import a_spec
from tests.support.load import is_quick
from tests.support.world import World
from trainmaster.cli.main import app
from trainmaster.gcp import clients, project_access, retries
from trainmaster.gcp.tools import inspection
from trainmaster.gcp.tools.inspection import Endpoints
from trainmaster.settings import settings
from trainmaster.wiring import core_services, log_reader, metrics, objects, price_list, prices

WAIT_S = 0.2
"""Replaces the deadlines of these commands."""
CACHED = (
    settings,
    log_reader.log_entries,
    metrics.metric_reader,
    objects.objects,
    prices.checkpoint_times,
    price_list.price_list,
)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def world(silent: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A running job, whose state can be read. All other services are silent."""
    address = f"http://127.0.0.1:{silent.getsockname()[1]}"
    for name in ("COMPUTE", "TPU", "MONITORING", "LOGGING", "IAM"):
        monkeypatch.setenv(f"TRAINMASTER_{name}_ENDPOINT", address)
    for name in ("PUBSUB", "FIRESTORE", "STORAGE"):
        monkeypatch.setenv(f"{name}_EMULATOR_HOST", address)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "silent-project")
    monkeypatch.setenv("TRAINMASTER_BUCKET", "silent-bucket")
    monkeypatch.setenv("TRAINMASTER_IAM_ENDPOINT", address)
    monkeypatch.setenv("TRAINMASTER_IAM_ACCOUNTS_ENDPOINT", address)
    monkeypatch.setattr(inspection, "TIMEOUT_S", WAIT_S)
    monkeypatch.setitem(project_access._call.__kwdefaults__ or {}, "timeout_s", WAIT_S)
    monkeypatch.setattr(clients, "caller_token", lambda _: "token")
    for module in (retries, price_list, prices):
        monkeypatch.setattr(module, "OPTIONAL_READ_S", WAIT_S)
    world = World()
    monkeypatch.setattr(core_services, "store", lambda: world.store)
    for cached in CACHED:
        cached.cache_clear()
    world.submit(a_spec(jobDir="gs://silent-bucket/job"))
    world.deliver()
    world.report_all_ready()
    yield world
    for cached in CACHED:
        cached.cache_clear()


def run(*words: str) -> tuple[Result, float]:
    began = time.monotonic()
    result = CliRunner().invoke(app, words)
    return result, time.monotonic() - began


@pytest.mark.parametrize(
    ("command", "shown", "missing"),
    [
        (
            ["why"],
            "Now: RUNNING.",
            [
                "Cannot find out how far the job is: read Cloud Monitoring",
                "Cannot find out whether lines of the log, measurements",
                "missing: read Cloud Logging",
            ],
        ),
        (["jobs", "describe"], "state: RUNNING", ["how far the job is", "gs://silent-bucket"]),
    ],
    ids=["why", "describe"],
)
def test_command_shows_what_is_stored_and_names_what_did_not_answer(
    world: World, command: list[str], shown: str, missing: list[str]
) -> None:
    result, took_s = run(*command, world.job_id)
    assert result.exit_code == 0, result.output
    assert shown in result.output
    for text in missing:
        assert text in result.output
    assert is_quick(took_s, 9.0), "a time limit of Google's clients is 10 s or more"


@pytest.mark.usefixtures("world")
def test_doctor_calls_each_service_once_that_does_not_answer(silent: socket.socket) -> None:
    result, _ = run("doctor")
    assert result.exit_code == 1
    unanswered = [line for line in result.output.splitlines() if "does not answer" in line]
    assert len(unanswered) > 12, result.output
    calls = 0
    with suppress(BlockingIOError):
        while True:
            silent.accept()[0].close()
            calls += 1
    assert 4 <= calls <= len(fields(Endpoints)) < len(unanswered)
