"""The local stack's push subscriptions deliver a message again after failed pushes."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.serving import serving
from tests.support.stack import eventually
from trainmaster_emulators.services import pubsub

pytestmark = pytest.mark.emulator

MESSAGES = 20
FAILED_PUSHES = 4


class FailingServer(ThreadingHTTPServer):
    """Acknowledge a message at its fifth push.

    The pushes before end with 503, or with a closed connection.
    """

    daemon_threads = True

    def __init__(self, *, closes: bool) -> None:
        super().__init__(("127.0.0.1", 0), PushHandler)
        self.closes = closes
        self.pushes: Counter[str] = Counter()
        self.acknowledged: set[str] = set()


class PushHandler(BaseHTTPRequestHandler):
    server: FailingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message_id = body["message"]["messageId"]
        self.server.pushes[message_id] += 1
        fails = self.server.pushes[message_id] <= FAILED_PUSHES
        if fails and self.server.closes:
            self.close_connection = True
            return
        self.send_response(503 if fails else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if not fails:
            self.server.acknowledged.add(message_id)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("closes", [False, True], ids=["503", "closed connection"])
def test_message_arrives_after_four_failed_pushes(closes: bool, pubsub_emulator: str) -> None:
    client = pubsub.PubSub(pubsub_emulator, f"test-{uuid.uuid4().hex[:8]}")
    server = FailingServer(closes=closes)
    with serving(server):
        client.create_topic(pubsub.DEAD_LETTER)
        client.create_topic("work")
        client.create_push("work", server.server_port, pubsub.DELIVERY)
        for number in range(MESSAGES):
            client.publish("work", str(number).encode())
        eventually(lambda: len(server.acknowledged) == MESSAGES)
