"""A stand-in for Google Cloud as a VM sees it, over real HTTP.

One server plays the metadata server, Pub/Sub's publish method, Cloud Storage and Secret Manager.
Metadata has long polls as on a real VM (``wait_for_change``, ``last_etag``), and every part can be
made to fail.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from trainmaster_local.memory.bus import VALUE_BYTES_MAX

TIMEOUT_S: Final = 150.0
TOKEN_CHARS: Final = 1200
"""About the length of the identity tokens that Google issues to a VM."""
DIRECTIVE: Final = "instance/attributes/trainmaster-directive"
"""Metadata entry with the directive: what the agent is ordered to do."""
UPLOADS: Final = "/upload/storage/v1/b/"
PAGE_OBJECTS: Final = 2
"""Number of objects in one page of a listing."""


@dataclass(frozen=True)
class Message:
    """A published event, as its subscriber receives it."""

    topic: str
    body: dict[str, Any]
    attributes: dict[str, str]
    at: float
    """Value of time.monotonic() when it was accepted."""

    @property
    def subject(self) -> tuple[int, int]:
        """Attempt of the job and incarnation, the number of the program's start in that attempt."""
        return self.body["attempt"], self.body["incarnation"]


class Cloud:
    """The state behind the server; every method may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._metadata: dict[str, str] = {}
        self._closed = False
        self.objects: dict[str, bytes] = {}
        """Content by gs://bucket/name, or by gs://bucket/name#generation."""
        self.secrets: dict[str, bytes] = {}  # projects/…/versions/… -> value
        self.secret_statuses: list[int] = []  # for the next reads; 200 when empty
        self.messages: list[Message] = []
        self.refused: list[str] = []  # topics of publish calls that got an error
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.publish_status = 200
        self.storage_statuses: list[int] = []  # for the next downloads; 200 when empty
        self.storage_stalls = False  # reads of a part of an object get no answer
        self.identity_status = 200
        self.guest_attributes: dict[str, str] = {}  # NAMESPACE/KEY -> value
        self.guest_attributes_status = 200
        self.guest_attribute_writes = 0
        self.clock_offset_s = 0.0  # of the Date header
        self.token_lasts_s = 3600
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def set(self, path: str, value: str | None) -> None:
        """Change one metadata entry; None removes it."""
        with self._changed:
            if value is None:
                self._metadata.pop(path, None)
            else:
                self._metadata[path] = value
            self._changed.notify_all()

    def direct(
        self, *, attempt: int, incarnation: int, action: str = "run", **fields: object
    ) -> float:
        """Set the directive. Return the value of time.monotonic() just before."""
        at = time.monotonic()
        self.set(
            DIRECTIVE,
            json.dumps(
                {"attempt": attempt, "incarnation": incarnation, "action": action, **fields}
            ),
        )
        return at

    def wait_for(self, what: str, is_there: Callable[[list[Message]], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: is_there(self.messages), TIMEOUT_S):
                raise AssertionError(f"{what} was not published; messages: {self.messages}")

    def wait_for_message(
        self, topic: str, subject: tuple[int, int] | None = None, *, number: int = 1
    ) -> Message:
        """Return the first message of this topic, or a later one, optionally about this
        incarnation.
        """

        def matching(messages: list[Message]) -> list[Message]:
            return [
                m
                for m in messages
                if m.topic == topic and (subject is None or m.subject == subject)
            ]

        self.wait_for(
            f"{topic} {subject or ''}", lambda messages: len(matching(messages)) >= number
        )
        return matching(self.messages)[number - 1]

    def set_and_wait(self, path: str, value: str) -> None:
        """Change a metadata entry that is being watched, and wait until the watcher polls again."""

        def polls() -> int:
            return sum(requested.endswith(path) for requested, _ in self.requests)

        with self._changed:
            before = polls()
            self.set(path, value)
            assert self._changed.wait_for(lambda: polls() > before, TIMEOUT_S), (
                f"{path} is not watched"
            )

    def wait_for_refusal(self, topic: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: topic in self.refused, TIMEOUT_S), (
                f"nothing was published to {topic}"
            )

    def published(self) -> list[tuple[str, tuple[int, int]]]:
        """Return topic and incarnation of all published messages, in order."""
        return [(m.topic, m.subject) for m in self.messages]

    @contextlib.contextmanager
    def publishing_fails(self) -> Iterator[None]:
        self.publish_status = 503
        try:
            yield
        finally:
            self.publish_status = 200

    # Called by the HTTP handler.

    def metadata(self, path: str, query: dict[str, str]) -> tuple[int, str, str]:
        """Return the HTTP status, value and etag of one metadata entry."""
        if path == "instance/service-accounts/default/identity":
            return (
                self.identity_status,
                f"token-for:{query['audience']}:{query['format']}:" + "x" * TOKEN_CHARS,
                "",
            )
        if path == "instance/service-accounts/default/token":
            token = {
                "access_token": "secret",
                "expires_in": self.token_lasts_s,
                "token_type": "Bearer",
            }
            return 200, json.dumps(token), ""
        with self._changed:
            if query.get("wait_for_change") == "true" and path in self._metadata:
                self._changed.wait_for(
                    lambda: self._closed or self._etag(path) != query.get("last_etag"),
                    float(query["timeout_sec"]),
                )
            value = self._metadata.get(path)
            if value is None or self._closed:
                return 404, "not found", ""
            return 200, value, self._etag(path)

    def store(self, path: str, data: bytes) -> None:
        """Store an object that is uploaded to this path with its query."""
        parts = urlsplit(path)
        bucket = parts.path.removeprefix(UPLOADS).partition("/")[0]
        name = parse_qs(parts.query)["name"][0]
        with self._changed:
            self.objects[f"gs://{bucket}/{name}"] = data
            self._changed.notify_all()

    def publish(self, topic: str, call: dict[str, Any]) -> int:
        """Accept or refuse the messages of a request as a whole. Return the HTTP status."""
        with self._changed:
            values = [
                value
                for message in call["messages"]
                for value in message.get("attributes", {}).values()
            ]
            is_too_long = any(len(value.encode()) > VALUE_BYTES_MAX for value in values)
            status = 400 if is_too_long else self.publish_status
            if status == 200:
                for message in call["messages"]:
                    body = json.loads(base64.b64decode(message["data"]))
                    self.messages.append(
                        Message(topic, body, message.get("attributes", {}), time.monotonic())
                    )
            else:
                self.refused.append(topic)
            self._changed.notify_all()
            return status

    def storage(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body for BUCKET/o, a listing, or BUCKET/o/NAME, an object."""
        bucket, slash, name = path.partition("/o/")
        if not slash:
            return 200, self.listing(unquote(bucket.removesuffix("/o")), query)
        generation = f"#{query['generation']}" if "generation" in query else ""
        return self.download(f"gs://{unquote(bucket)}/{unquote(name)}{generation}")

    def download(self, uri: str) -> tuple[int, bytes]:
        if self.storage_statuses:
            status = self.storage_statuses.pop(0)
            if status != 200:
                return status, b"fails on purpose"
        return (200, self.objects[uri]) if uri in self.objects else (404, b"No such object")

    def listing(self, bucket: str, query: dict[str, str]) -> bytes:
        """Return a page of the bucket's objects. Objects that were added later have later times."""
        items = [
            {
                "name": uri.removeprefix(f"gs://{bucket}/"),
                "updated": f"2026-11-21T03:00:{position:02}.000Z",
                "size": str(len(content)),
            }
            for position, (uri, content) in enumerate(self.objects.items())
            if uri.startswith(f"gs://{bucket}/{query['prefix']}")
        ]
        start = int(query.get("pageToken", "0"))
        end = start + PAGE_OBJECTS
        page: dict[str, Any] = {"items": items[start:end]} if items else {}
        if end < len(items):
            page["nextPageToken"] = str(end)
        return json.dumps(page).encode()

    def access(self, version: str) -> tuple[int, bytes]:
        """Return status and body for a version of a secret."""
        if self.secret_statuses:
            status = self.secret_statuses.pop(0)
            if status != 200:
                return status, b"fails on purpose"
        if version not in self.secrets:
            return 404, b"Secret not found or has no versions"
        payload = {"data": base64.b64encode(self.secrets[version]).decode()}
        return 200, json.dumps({"name": version, "payload": payload}).encode()

    def wait_for_close(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, TIMEOUT_S)

    def record_request(self, path: str, headers: dict[str, str]) -> None:
        with self._changed:
            self.requests.append((path, headers))
            self._changed.notify_all()

    def write_guest_attribute(self, path: str, value: str, flavor: str | None) -> int:
        """Store the value unless the fault of the test forbids it. Return the HTTP status."""
        with self._changed:
            self.guest_attribute_writes += 1
            if flavor != "Google":
                return 403
            if self.guest_attributes_status == 200:
                self.guest_attributes[path] = value
            return self.guest_attributes_status

    def _etag(self, path: str) -> str:
        return f"{hash(self._metadata.get(path)) & 0xFFFFFFFF:08x}"


def part_of(status: int, content: bytes, range_header: str | None) -> tuple[int, bytes]:
    """Return the status and the part of an object that `bytes=FIRST-LAST` names, as Cloud Storage
    does.
    """
    if status != 200 or range_header is None:
        return status, content
    first, last = (int(position) for position in range_header.removeprefix("bytes=").split("-"))
    if first >= len(content):
        return 416, b"Request range not satisfiable"
    return 206, content[first : last + 1]


def _handler_of(cloud: Cloud) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class of many short methods
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + cloud.clock_offset_s)

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            cloud.record_request(url.path, dict(self.headers))
            if url.path.startswith("/computeMetadata/v1/"):
                if self.headers.get("Metadata-Flavor") != "Google":
                    self._answer(403, b"Missing Metadata-Flavor:Google header")
                    return
                status, value, etag = cloud.metadata(
                    url.path.removeprefix("/computeMetadata/v1/"), query
                )
                self._answer(status, value.encode(), etag)
            elif url.path.startswith("/storage/v1/b/"):
                if cloud.storage_stalls and "Range" in self.headers:
                    cloud.wait_for_close()
                status, content = cloud.storage(url.path.removeprefix("/storage/v1/b/"), query)
                self._answer(*part_of(status, content, self.headers.get("Range")))
            elif url.path.startswith("/v1/projects/") and url.path.endswith(":access"):
                self._answer(*cloud.access(url.path.removeprefix("/v1/").removesuffix(":access")))
            else:
                self._answer(404, b"no such API")

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            cloud.record_request(self.path, dict(self.headers))
            if self.path.startswith(UPLOADS):
                cloud.store(self.path, data)
                self._answer(200, b"{}")
                return
            topic = self.path.removeprefix("/v1/").removesuffix(":publish").rsplit("/", 1)[-1]
            self._answer(cloud.publish(topic, json.loads(data)), b'{"messageIds": ["1"]}')

        def do_PUT(self) -> None:
            value = self.rfile.read(int(self.headers["Content-Length"])).decode()
            path = self.path.removeprefix("/computeMetadata/v1/instance/guest-attributes/")
            self._answer(
                cloud.write_guest_attribute(path, value, self.headers.get("Metadata-Flavor")), b""
            )

        def _answer(self, status: int, body: bytes, etag: str = "") -> None:
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                if etag:
                    self.send_header("ETag", etag)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
