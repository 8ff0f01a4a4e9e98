"""Events reach the functions, whatever happens to those; the real clients reach the stack."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from emulators.services import pubsub
from emulators.stack.state import StackConfig
from tests.support.serving import serving
from tests.support.stack import LocalStack, eventually, local_stack, recording_functions


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack whose functions keep what they get."""
    folder = recording_functions(tmp_path_factory.mktemp("functions"))
    config = StackConfig(functions_dir=folder, compute=False, sweep_every_s=1)
    with local_stack(tmp_path_factory.mktemp("state"), config) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def refused(recording: LocalStack) -> Iterator[list[bytes]]:
    """What a function with a bug was sent: it answers 500 to a message that is published here.

    Before all tests of this module, because five deliveries take the emulator 13 s whatever the retry policy says.
    """
    deliveries: list[bytes] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            deliveries.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    with serving(server):
        recording.pubsub.create_topic("poison")
        recording.pubsub.create_push("poison", server.server_port, pubsub.Delivery(attempts_max=5))
        recording.pubsub.publish("poison", b"never", source="test")
        yield deliveries


def received(stack: LocalStack, function: str) -> list[dict[str, Any]]:
    """The messages a recording function got, with their data decoded."""
    file = stack.state.config.functions_dir / f"{function}.jsonl"
    if not file.exists():
        return []
    messages = [json.loads(line)["message"] for line in file.read_text(encoding="utf-8").splitlines()]
    return [{**each, "data": base64.b64decode(each["data"]).decode()} for each in messages]


def uploads(stack: LocalStack) -> set[str]:
    """Names of the objects the upload function was told of."""
    return {each["attributes"].get("objectId", "") for each in received(stack, "upload")}


def test_every_topic_is_delivered_to_its_function(recording: LocalStack) -> None:
    for function in recording.state.config.functions:
        recording.pubsub.publish(pubsub.topic_of(function), f"to {function}".encode(), source="test")

    def all_delivered() -> bool:
        return all(
            any(each["data"] == f"to {function}" for each in received(recording, function))
            for function in recording.state.config.functions
        )

    eventually(all_delivered)


def test_the_scheduler_sweeps(recording: LocalStack) -> None:
    eventually(lambda: "{}" in [each["data"] for each in received(recording, "sweep")])


@pytest.mark.parametrize(
    "copy", [["gsutil", "cp"], ["gcloud", "storage", "cp"]], ids=["gsutil cp", "gcloud storage cp"]
)
def test_an_upload_by_the_real_client_reaches_the_upload_function(
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
    read = recording.run(copy[0], *copy[1:-1], "cat", f"gs://{recording.state.config.bucket}/{name}", home=home)
    assert read.stdout == "jobId: x\n"
    assert not list(home.iterdir()), "the client keeps its state in the stack's directory"


def test_objects_elsewhere_are_no_events(recording: LocalStack, tmp_path: Path) -> None:
    before = uploads(recording)
    for name in ("data/x.csv", "jobs/after.yaml"):
        (tmp_path / "x").write_text("x", encoding="utf-8")
        done = recording.run("gcloud", "storage", "cp", str(tmp_path / "x"), f"gs://trainmaster-local/{name}")
        assert done.returncode == 0, done.stderr
    eventually(lambda: "jobs/after.yaml" in uploads(recording))
    assert uploads(recording) - before == {"jobs/after.yaml"}


def test_gcloud_publishes(recording: LocalStack) -> None:
    done = recording.run(
        "gcloud", "pubsub", "topics", "publish", "trainmaster-submit", "--message=by gcloud", "--attribute=source=me"
    )
    assert done.returncode == 0, done.stderr
    eventually(lambda: "by gcloud" in [each["data"] for each in received(recording, "submit")])


@pytest.mark.parametrize("victim", ["server", "worker"])
def test_a_killed_function_comes_back_and_loses_nothing(victim: str, recording: LocalStack) -> None:
    server = recording.state.services["submit"]
    pid = server.pid if victim == "server" else psutil.Process(server.pid).children()[0].pid
    sent = {f"{victim} {index}" for index in range(20)}
    for index, message in enumerate(sorted(sent)):
        if index == 10:
            os.kill(pid, signal.SIGKILL)
        recording.pubsub.publish("trainmaster-submit", message.encode())
    eventually(lambda: sent <= {each["data"] for each in received(recording, "submit")})
    now = recording.state.services["submit"]
    assert now.address == server.address
    assert now.restarts - server.restarts == (1 if victim == "server" else 0)


def test_two_stacks_side_by_side_do_not_meet(recording: LocalStack, tmp_path: Path) -> None:
    config = StackConfig(
        functions_dir=recording_functions(tmp_path / "functions"), functions=("submit",), compute=False
    )
    with local_stack(tmp_path / "state", config) as other:
        first, second = recording.state, other.state
        assert {each.address for each in first.services.values() if each.address}.isdisjoint(
            each.address for each in second.services.values()
        )
        other.pubsub.publish("trainmaster-submit", b"for the second")
        eventually(lambda: received(other, "submit"))
    assert "for the second" not in [each["data"] for each in received(recording, "submit")]
    assert all(psutil.pid_exists(each.pid) for each in recording.state.services.values())


def test_a_message_nobody_can_handle_ends_in_the_dead_letter(recording: LocalStack, refused: list[bytes]) -> None:
    dead: list[dict[str, Any]] = []

    def is_dead() -> bool:
        dead.extend(recording.pubsub.pull(pubsub.DEAD_LETTER))
        return bool(dead)

    eventually(is_dead)
    assert [each["data"] for each in dead] == [b"never"]
    assert dead[0]["attributes"]["source"] == "test"
    assert len(refused) == 5
