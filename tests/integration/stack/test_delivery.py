"""Delivery of events to the functions, and the real clients against the stack."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest

from tests.support.gcloud import run_gcloud
from tests.support.serving import serving
from tests.support.stack import (
    LocalStack,
    clean_environment,
    eventually,
    local_stack,
    recording_functions,
)
from trainmaster_emulators.process import processes, state
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackStatus
from trainmaster_emulators.services import pubsub, storage

HEAVY = pytest.mark.heavy(
    fact="two stacks are separate, and real clients upload",
    quick="`integration/stack/test_configuration.py`, `integration/stack/test_push_flow.py`",
)

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack whose functions record the messages they receive."""
    folder = recording_functions(tmp_path_factory.mktemp("functions"))
    config = StackConfig(functions_dir=folder, compute=False, sweep_every_s=1)
    with local_stack(tmp_path_factory.mktemp("state"), config) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def failed_deliveries(recording: LocalStack) -> Iterator[list[bytes]]:
    """Publish a message to a function that always returns 500; yield the requests that it receives.

    This runs before all tests of the module, because five deliveries take the emulator several
    seconds.
    """
    deliveries: list[bytes] = []

    class FailingHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            deliveries.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), FailingHandler)
    with serving(server):
        recording.pubsub.create_topic("poison")
        recording.pubsub.create_push("poison", server.server_port, pubsub.Delivery(attempts_max=5))
        recording.pubsub.publish("poison", b"never", source="test")
        yield deliveries


def received(stack: LocalStack, function: str) -> list[dict[str, Any]]:
    """Return the messages that a recording function received, with decoded data."""
    file = stack.state.config.functions_dir / f"{function}.jsonl"
    if not file.exists():
        return []
    messages = [
        json.loads(line)["message"] for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return [{**message, "data": base64.b64decode(message["data"]).decode()} for message in messages]


def received_data(stack: LocalStack, function: str) -> list[str]:
    return [message["data"] for message in received(stack, function)]


def uploads(stack: LocalStack) -> set[str]:
    """Return the names of the objects of which the upload function was notified."""
    return {message["attributes"].get("objectId", "") for message in received(stack, "upload")}


def test_emulators_without_guard_listen_on_blocked_ports(recording: LocalStack) -> None:
    endpoints = recording.state.endpoints
    unguarded = (endpoints.firestore, endpoints.pubsub, endpoints.storage, endpoints.storage_tls)
    ports = {processes.split_address(address)[1] for address in unguarded}
    assert len(ports) == 4
    assert ports <= set(processes.BROWSER_BLOCKED_PORTS)


def test_each_topic_is_delivered_to_its_function(recording: LocalStack) -> None:
    for function in recording.state.config.functions:
        recording.pubsub.publish(
            pubsub.topic_of(function), f"to {function}".encode(), source="test"
        )

    def all_delivered() -> bool:
        functions = recording.state.config.functions
        return all(f"to {function}" in received_data(recording, function) for function in functions)

    eventually(all_delivered)


def test_scheduler_triggers_the_sweep(recording: LocalStack) -> None:
    eventually(lambda: "{}" in received_data(recording, "sweep"))


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(["gsutil", "cp"], id="gsutil cp"),
        pytest.param(["gcloud", "storage", "cp"], id="gcloud storage cp", marks=HEAVY),
    ],
)
def test_upload_by_a_real_client_reaches_the_upload_function(
    copy: list[str], recording: LocalStack, tmp_path: Path
) -> None:
    name = f"jobs/by-{copy[0]}.yaml"
    job = tmp_path / "job.yaml"
    job.write_text("jobId: x\n", encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()

    done = recording.run(*copy, str(job), f"gs://{recording.state.config.bucket}/{name}", home=home)

    assert done.returncode == 0, done.stderr
    eventually(lambda: name in uploads(recording))
    storage = f"{recording.state.endpoints.storage}/storage/v1"
    address = f"{storage}/b/{recording.state.config.bucket}/o/{quote(name, '')}"
    with urlopen(f"http://{address}?alt=media") as read:
        assert read.read() == b"jobId: x\n"
    assert not list(home.iterdir()), "the client keeps its state in the stack's directory"


def test_upload_outside_the_jobs_folder_publishes_no_event(recording: LocalStack) -> None:
    before = uploads(recording)
    for name in ("data/x.csv", "jobs/after.yaml"):
        storage.create_object(recording.state.endpoints.storage, "trainmaster-local", name, b"x")
    eventually(lambda: "jobs/after.yaml" in uploads(recording))
    assert uploads(recording) - before == {"jobs/after.yaml"}


def test_message_published_by_gcloud_is_delivered(recording: LocalStack) -> None:
    publish = (
        "pubsub",
        "topics",
        "publish",
        "trainmaster-submit",
        "--message=by gcloud",
        "--attribute=source=me",
    )
    done = run_gcloud(*publish, environment={**clean_environment(), **recording.environment})
    assert done.returncode == 0, done.stderr
    eventually(lambda: "by gcloud" in received_data(recording, "submit"))


@pytest.mark.parametrize("victim", ["server", "worker"])
def test_killed_function_is_restarted_and_loses_no_message(
    victim: str, recording: LocalStack
) -> None:
    server = recording.state.services["submit"]
    pid = server.pid if victim == "server" else psutil.Process(server.pid).children()[0].pid
    sent = {f"{victim} {index}" for index in range(20)}
    for index, message in enumerate(sorted(sent)):
        if index == 10:
            os.kill(pid, signal.SIGKILL)
        recording.pubsub.publish("trainmaster-submit", message.encode())
    eventually(lambda: sent <= set(received_data(recording, "submit")))
    restarted = recording.state.services["submit"]
    assert restarted.address == server.address
    assert restarted.restarts - server.restarts == (1 if victim == "server" else 0)


def test_call_waits_while_a_function_starts_again(recording: LocalStack) -> None:
    """A refused push would count as one of the 100 deliveries, which the emulator makes in two
    minutes.
    """
    service = recording.state.services["maintenance"]
    main = psutil.Process(service.pid)
    killed = [main, *main.children(recursive=True)]
    for process in killed:
        process.kill()
    psutil.wait_procs(killed)
    push = {"message": {"data": base64.b64encode(b"during the restart").decode()}}
    assert call(service.address, "POST", "/", push, timeout_s=60) == {}
    assert "during the restart" in received_data(recording, "maintenance")
    eventually(lambda: recording.state.services["maintenance"].restarts == service.restarts + 1)


@HEAVY
def test_two_stacks_share_no_address_and_no_message(recording: LocalStack, tmp_path: Path) -> None:
    config = StackConfig(
        functions_dir=recording_functions(tmp_path / "functions"),
        functions=("submit",),
        compute=False,
    )
    with local_stack(tmp_path / "state", config) as other:
        first, second = recording.state, other.state
        assert {
            service.address for service in first.services.values() if service.address
        }.isdisjoint(service.address for service in second.services.values())
        other.pubsub.publish("trainmaster-submit", b"for the second")
        eventually(lambda: received(other, "submit"))
    assert "for the second" not in received_data(recording, "submit")
    assert all(psutil.pid_exists(service.pid) for service in recording.state.services.values())


def test_message_that_always_fails_becomes_a_dead_letter(
    recording: LocalStack, failed_deliveries: list[bytes]
) -> None:
    dead_letters: list[dict[str, Any]] = []

    def has_dead_letters() -> bool:
        dead_letters.extend(recording.pubsub.pull(pubsub.DEAD_LETTER))
        return bool(dead_letters)

    eventually(has_dead_letters)
    assert [message["data"] for message in dead_letters] == [b"never"]
    assert dead_letters[0]["attributes"]["source"] == "test"
    assert len(failed_deliveries) == 5


def test_end_of_firestore_fails_the_stack_and_ends_its_processes(recording: LocalStack) -> None:
    """The last test of the module, because it ends the stack."""
    running = recording.state
    os.kill(running.services["firestore"].pid, signal.SIGKILL)
    eventually(lambda: not processes.list_processes(running.id))
    ended = state.read(recording.state_dir)
    assert ended is not None
    assert (ended.id, ended.status) == (running.id, StackStatus.FAILED)
    assert "firestore ended with signal SIGKILL and lost its state" in str(ended.error)
