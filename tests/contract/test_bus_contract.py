"""The Bus on Google's Pub/Sub emulator, and where Pub/Sub has errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from emulators.services.pubsub import PubSub
from shared.errors import TemporaryError
from shared.gcp.pubsub_bus import PubsubBus
from shared.gcp.rest import RestError
from tests.support.serving import serving


@pytest.fixture
def project() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def pubsub(pubsub_emulator: str, project: str, monkeypatch: pytest.MonkeyPatch) -> PubSub:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    made = PubSub(pubsub_emulator, project)
    made.create_topic("trainmaster-submit")
    made.create_pull("trainmaster-submit", "trainmaster-submit")
    return made


def test_what_is_published_arrives_as_it_is(pubsub: PubSub, project: str) -> None:
    bus = PubsubBus(project)
    said = {b"\x00\xff not text": {"source": "gs://b/jobs/ä.yaml#1"}, b"{}": {}}
    for data, attributes in said.items():
        bus.publish("trainmaster-submit", data, attributes)
    bus.close()
    found = {each["data"]: each["attributes"] for each in pubsub.pull("trainmaster-submit")}
    assert found == said


def test_a_topic_that_is_not_there_is_no_passing_trouble(pubsub: PubSub, project: str) -> None:
    bus = PubsubBus(project)
    with pytest.raises(RestError, match="404"):
        bus.publish("nobodys-topic", b"{}", {})
    bus.close()


@pytest.fixture
def troubled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Answers with these, one after the other, and then for ever with the last one."""
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(answers.pop(0) if len(answers) > 1 else answers[0])
            self.end_headers()
            self.wfile.write(json.dumps({"messageIds": ["1"]}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server) as address:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address.removeprefix("http://"))
        yield answers


@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_that_passes_soon_is_sat_out(troubled: list[int], status: int, project: str) -> None:
    troubled += [status, status, 200]
    bus = PubsubBus(project)
    bus.publish("trainmaster-submit", b"{}", {})
    bus.close()
    assert troubled == [200]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_trouble_that_stays_is_for_the_next_delivery(troubled: list[int], status: int, project: str) -> None:
    troubled += [status]
    bus = PubsubBus(project)
    with pytest.raises(TemporaryError, match=f"publish to trainmaster-submit: HTTP {status}"):
        bus.publish("trainmaster-submit", b"{}", {})
    bus.close()


def test_nobody_answers(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:9")
    bus = PubsubBus(project)
    with pytest.raises(TemporaryError, match="publish to trainmaster-submit"):
        bus.publish("trainmaster-submit", b"{}", {})
    bus.close()
