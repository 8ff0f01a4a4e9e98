"""What becomes of a message that Pub/Sub pushes to a function: the function acknowledges it, has it
redelivered, or publishes it to the dead-letter topic.

The functions are the project's own, served by functions-framework. "Letter" is short for dead
letter here.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import functions_framework
import pytest
from flask.testing import FlaskClient

from tests.support.jobs import CHIEF, a_spec
from tests.support.world import World
from trainmaster.core.rules.admission_queue import RUN_HOURS
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.messaging import push, topics
from trainmaster.messaging.json_log import JsonLines
from trainmaster.messaging.push import (
    ATTRIBUTES_MAX,
    CUT_BYTES,
    LETTER_BYTES_MAX,
    VALUE_BYTES_MAX,
)
from trainmaster.settings import settings
from trainmaster.wiring import core_services, fleet, intake_deps
from trainmaster_local.memory.bus import Message

FUNCTIONS = Path(__file__).parents[3] / "functions"
SECRET = "eyJhbGciOiJSUzI1NiJ9.secret"


def envelope(data: object, **attributes: str) -> dict[str, object]:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    message = {"data": base64.b64encode(body).decode(), "attributes": attributes, "messageId": "17"}
    return {"message": message, "subscription": "projects/p/subscriptions/s"}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose events are not authenticated. test_identity.py covers authentication."""
    world = World()
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.delenv("TRAINMASTER_WORKER_SERVICE_ACCOUNT", raising=False)
    settings.cache_clear()
    monkeypatch.setattr(core_services, "deps", lambda: world.deps)
    monkeypatch.setattr(core_services, "creation_deps", lambda: world.deps)
    monkeypatch.setattr(intake_deps, "intake_deps", lambda: world.deps)
    monkeypatch.setattr(core_services, "bus", lambda: world.bus)
    return world


@pytest.fixture
def client(world: World) -> Callable[[str], FlaskClient]:
    def start(name: str) -> FlaskClient:
        app = functions_framework.create_app(name, str(FUNCTIONS / f"{name}.py"), "http")
        app.config["PROPAGATE_EXCEPTIONS"] = False
        test_client: FlaskClient = app.test_client()
        return test_client

    return start


def dead_letters(world: World) -> list[Message]:
    return [message for message in world.bus.drain() if message.topic == topics.DEAD_LETTER]


def test_handled_message_is_acknowledged_with_an_empty_body(
    world: World, client: Callable[[str], FlaskClient]
) -> None:
    response = client("submit").post("/", json=envelope({"jobId": "digits_1", **a_spec()}))
    assert (response.status_code, response.data) == (204, b"")
    assert world.job.job_id == "digits_1"


def test_repeated_message_is_acknowledged_and_changes_nothing(
    world: World, client: Callable[[str], FlaskClient]
) -> None:
    world.submit()
    world.deliver()
    vm_ready = client("vm_ready")
    versions = []
    for _ in range(5):
        assert vm_ready.post("/", json=envelope(world.message_fields(CHIEF))).status_code == 204
        versions.append(world.replica(CHIEF).version)
    assert len(set(versions)) == 1, "only the first delivery is stored"


@pytest.mark.parametrize(
    ("function", "data"),
    [
        ("upload", {"kind": "storage#object"}),
        ("vm_ready", {"version": 1}),
        ("vm_ready", b"not json"),
        ("replica_exit", {"version": 2, "job_id": "digits_1"}),
        ("maintenance", []),
        ("replica_exit", {"job_id": "nobody"}),
    ],
)
def test_message_that_cannot_be_handled_is_dead_lettered_with_its_reason(
    world: World, client: Callable[[str], FlaskClient], function: str, data: object
) -> None:
    response = client(function).post("/", json=envelope(data, identity=SECRET))
    assert response.status_code == 204
    (letter,) = dead_letters(world)
    assert letter.attributes["function"] == function
    assert letter.attributes["reason"]
    assert letter.attributes["identity"] == SECRET, "a replay needs the token"
    assert letter.attributes["published_at"]
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    assert letter.data == body, "the data is kept"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"jobId": "bad name!", "trainingInput": {}}, id="id"),
        pytest.param({"jobId": "digits_1", **a_spec(scaleTier="HUGE")}, id="field"),
        pytest.param({"jobId": "digits_1", **a_spec(args=[])}, id="used"),
        pytest.param({"jobId": "digits_2", **a_spec()}, id="limit"),
        pytest.param(b"\xff not: [yaml", id="yaml"),
        pytest.param(b'{"jobId": "\\ud800", "\\ud800": 1}', id="text"),
        pytest.param(b'{"a":' * 100_000, id="deep"),
        pytest.param(b"x" * ((1 << 20) + 1), id="large"),
        pytest.param(b"x" * 9_000_000, id="larger than is read"),
    ],
)
def test_refused_submission_is_recorded_and_acknowledged_but_no_dead_letter(
    world: World,
    client: Callable[[str], FlaskClient],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    data: object,
) -> None:
    """It is a mistake of its sender, about which an operator can do nothing.

    The id digits_1 is in use, and no job of the default length fits the limit of one run hour.
    """
    submit = client("submit")
    submit.post("/", json=envelope({"jobId": "digits_1", **a_spec()}))
    world.limits = {RUN_HOURS: 1}
    caplog.set_level(logging.INFO, "push")
    monkeypatch.setattr(push, "_log", logging.getLogger("push"))  # without a handler of its own
    for _ in range(2):
        response = submit.post("/", json=envelope(data, source="cli:17/anna"))
        assert (response.status_code, response.data) == (204, b"")
    assert dead_letters(world) == []
    (rejection,) = world.store.rejections()
    assert rejection.problems
    lines = [JsonLines().format(entry) for entry in caplog.records if entry.name == "push"]
    line = json.loads(lines[0])
    assert (line["severity"], line["action"]) == ("INFO", "refused_submission")
    assert rejection.problems[0][:100] in line["message"]
    assert rejection.source in line["message"]
    assert lines == [lines[0], lines[0]], "both deliveries are logged alike"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b'{"message": 3}', id="message is a number"),
        pytest.param(b'{"message": {"data": "%%%"}}', id="data is not base64"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(
            b'{"message": {"publishTime": "0001-01-01T00:00:00+23:00"}}',
            id="publish time before the year 1 in UTC",
        ),
        pytest.param(
            b'{"message": {"data": "' + b"A" * 14_000_000 + b'"}}', id="larger than is read"
        ),
    ],
)
def test_malformed_push_request_is_dead_lettered_and_not_echoed(
    world: World, client: Callable[[str], FlaskClient], body: bytes
) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
    response = client("vm_ready").post("/", data=body, headers=headers)
    assert response.status_code == 204
    assert SECRET.encode() not in response.data
    assert len(dead_letters(world)) == 1


@pytest.mark.parametrize("attributes", [0, 95, ATTRIBUTES_MAX])
@pytest.mark.parametrize("size", [1, LETTER_BYTES_MAX, LETTER_BYTES_MAX + 1, 1_700_000])
def test_dead_letter_of_every_message_is_one_that_pubsub_accepts(
    world: World, client: Callable[[str], FlaskClient], attributes: int, size: int
) -> None:
    """The bus in memory has Pub/Sub's limits.

    A letter whose data is cut names the original size, and it keeps the identity token of its
    sender. A message that already has the most attributes that Pub/Sub allows has no token.
    """
    sent = {f"a{number}": "1" * 1024 for number in range(attributes)}
    if attributes < ATTRIBUTES_MAX:
        sent["identity"] = SECRET
    assert client("vm_ready").post("/", json=envelope(b"x" * size, **sent)).status_code == 204
    (letter,) = dead_letters(world)
    is_cut = size > LETTER_BYTES_MAX
    assert letter.attributes.get("cut") == (str(size) if is_cut else None)
    assert len(letter.data) == (CUT_BYTES if is_cut else size)
    assert letter.attributes.get("identity") == sent.get("identity")


def test_dead_letter_that_cannot_be_written_is_tried_again(
    world: World, client: Callable[[str], FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(*_: object) -> None:
        raise PermanentError("publish to trainmaster-dead-letter: 404")

    monkeypatch.setattr(world.bus, "publish", publish)
    assert client("vm_ready").post("/", json=envelope(b"{")).status_code == 503


@pytest.mark.parametrize(
    ("holder", "is_provisioned"),
    [pytest.param("16", False, id="another message"), pytest.param("17", True, id="this message")],
)
def test_provision_takes_the_lease_of_the_same_message_again(
    world: World,
    client: Callable[[str], FlaskClient],
    monkeypatch: pytest.MonkeyPatch,
    holder: str,
    is_provisioned: bool,
) -> None:
    """The process that handled the message first has died, and `holder` still has the job's lease.

    Pub/Sub redelivers the message under the same id, which is 17 here.
    """
    monkeypatch.setattr(fleet, "fleet_deps", lambda: world.fleet_deps)
    monkeypatch.setattr(fleet, "provision_deps", lambda: world.deps)
    world.submit()
    assert world.store.take_lease("digits_1", world.now, world.now + timedelta(seconds=60), holder)
    request = envelope({"version": 1, "job_id": "digits_1"})
    assert client("provision").post("/", json=request).status_code == 204
    assert bool(world.fleet.list_vms("digits_1")) is is_provisioned


def test_message_is_redelivered_after_a_temporary_error(
    world: World, client: Callable[[str], FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit()
    world.deliver()

    def broken(*_: object, **__: object) -> None:
        raise TemporaryError("Firestore is not available")

    monkeypatch.setattr(world.store, "load", broken)
    response = client("vm_ready").post("/", json=envelope(world.message_fields(CHIEF)))
    assert response.status_code == 503
    assert dead_letters(world) == []


def test_message_is_redelivered_after_an_unexpected_exception(
    world: World, client: Callable[[str], FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit()
    world.deliver()

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.store, "load", fail)
    response = client("vm_ready").post("/", json=envelope(world.message_fields(CHIEF)))
    assert response.status_code == 500
    assert b"ZeroDivision" not in response.data
    assert dead_letters(world) == []


def test_message_is_redelivered_if_its_dead_letter_cannot_be_written(
    world: World, client: Callable[[str], FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TemporaryError("Pub/Sub is not available")

    monkeypatch.setattr(world.bus, "publish", broken)
    assert client("vm_ready").post("/", json=envelope({})).status_code == 503


def test_message_without_attributes_and_data_is_handled(
    world: World, client: Callable[[str], FlaskClient]
) -> None:
    response = client("sweep").post("/", json={"message": {"messageId": "1"}, "subscription": "s"})
    assert response.status_code == 204


def test_reason_of_a_dead_letter_is_truncated_to_the_attribute_limit(
    world: World, client: Callable[[str], FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermanentError("é" * 2000)

    monkeypatch.setattr(world.store, "load", refuse)
    client("submit").post("/", json=envelope({"jobId": "digits_1", **a_spec()}))
    (letter,) = dead_letters(world)
    assert len(letter.attributes["reason"].encode()) == VALUE_BYTES_MAX


def test_dead_letter_of_a_message_with_illegal_names_and_values_is_one_that_pubsub_accepts(
    world: World, client: Callable[[str], FlaskClient]
) -> None:
    message = {
        "data": base64.b64encode(b"no JSON").decode(),
        "attributes": {"": "empty", "n" * 300: "long", "own": "v" * 5000},
        "messageId": "7" * 5000,
    }
    response = client("replica_exit").post("/", json={"message": message, "subscription": "s"})
    assert response.status_code == 204
    (letter,) = dead_letters(world)
    assert letter.attributes["message_id"] == "7" * VALUE_BYTES_MAX
    assert letter.attributes["own"] == "v" * VALUE_BYTES_MAX
    assert not letter.attributes.keys() & {"", "n" * 300}
