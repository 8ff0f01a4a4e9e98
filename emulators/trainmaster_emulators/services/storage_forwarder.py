"""Forward decrypted requests of the googleapis proxy to fake-gcs-server.

The proxy has two layers. The outer one (`googleapis_proxy`) answers CONNECT and ends TLS; the inner
one is here.

This module corrects these differences between fake-gcs-server and Cloud Storage (each has a test):

- The `Location` of a resumable upload contains fake-gcs-server's address. This module replaces it
  by its own host.
- `https://storage.googleapis.com/BUCKET/OBJECT`, where TensorFlow reads objects, works in
  fake-gcs-server only if that host is its `-public-host`, which other clients need with another
  value. The JSON API's download URL is used instead.
- A bucket that does not exist is reported as such, with the way to provide it. Most are public data
  sets.
- fake-gcs-server has no `storageLayout` of a bucket, which TensorFlow gets before it renames a
  directory. This module returns the bucket itself: it has all fields of the layout except
  `hierarchicalNamespace`, whose absence means false.

Not corrected: with `-backend filesystem`, the object `d/` that TensorFlow's `makedirs` writes is
not listed, so its `isdir` returns false until the directory contains a file.
"""

from __future__ import annotations

import http
import http.client
import json
import re
from collections.abc import Iterator, Mapping
from io import BufferedIOBase
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from trainmaster_emulators.browser_guard import JSON_HEADERS
from trainmaster_emulators.process.certificates import GOOGLE_DOMAIN
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.rest.quiet_http import QuietHandler, QuietServer
from trainmaster_emulators.services.missing_buckets import (
    XML_HOST,
    find_bucket,
    missing_bucket_text,
)

STORAGE_HOSTS: Final = frozenset({"www.googleapis.com", XML_HOST})
JSON_API_PATHS: Final = ("/storage/v1/", "/upload/", "/download/", "/batch/storage/", "/resumable/")
BUCKET_LAYOUT: Final = re.compile(r"^(/storage/v1/b/[^/?]+)/storageLayout(\?.*)?$")
CHUNK_BYTES: Final = 1 << 18
"""Largest piece of a body that is in memory at a time."""
UPSTREAM_TIMEOUT_S: Final = 150.0
"""Longer than a call that waits for an operation of Compute Engine."""
IDLE_TIMEOUT_S: Final = 300.0
"""Time after which a client's connection without a request is closed."""
# Headers that a proxy must not forward. Source: RFC 9110 section 7.6.1. `Expect` has been handled
# by the proxy.
HOP_HEADERS: Final = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class ForwardingServer(QuietServer):
    """Knows the emulators to which requests are forwarded."""

    storage: tuple[str, int]
    """Host and port of fake-gcs-server."""
    others: Mapping[str, tuple[str, int]] = MappingProxyType({})
    """Host of another Google API → host and port of its emulator."""

    def upstream(self, host: str) -> tuple[str, int] | None:
        """Return where requests to this host are answered; None: the local stack does
        not serve it.
        """
        return self.storage if is_storage_host(host) else self.others.get(host)


class ForwardingHandler(QuietHandler):
    """Base of both layers: errors in Google's JSON format."""

    checks_host = False
    timeout = IDLE_TIMEOUT_S

    def handle_expect_100(self) -> bool:
        """Send `100 Continue` at once.

        If it stayed in the buffer, curl would wait one second per upload.
        """
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    def send_google_error(self, status: int, message: str) -> None:
        """Send an error of Google's JSON APIs, and close the connection, because the request's body
        may be unread.
        """
        body = json.dumps(
            {
                "error": {
                    "code": status,
                    "message": message,
                    "errors": [{"reason": "localStack", "message": message}],
                }
            }
        ).encode()
        reason = message.encode("ascii", "replace").decode().replace("\n", " ")
        self.send_body(status, body, {**JSON_HEADERS, "Connection": "close"}, reason)


class StorageHandler(ForwardingHandler):
    """The inner layer: forwards the decrypted HTTP/1.1 requests to fake-gcs-server.

    Each client connection has its own kept-alive connection to fake-gcs-server, so requests stay in
    order.
    """

    server: ForwardingServer
    _upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        """Close the connections to fake-gcs-server and to the client."""
        self._disconnect()
        super().finish()

    def _disconnect(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def _forward(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0].lower()
        address = self.server.upstream(host)
        if address is None:
            served = ", ".join(["Cloud Storage", *self.server.others])
            self.send_google_error(
                501, f"the local stack serves {served} only, not {host or 'this service'}"
            )
            return
        try:
            response = self._send_upstream(
                address,
                storage_path(self.command, host, self.path),
                keeps_host=address == self.server.storage,
            )
        except (OSError, http.client.HTTPException) as error:
            # Clients retry on 503.
            self.send_google_error(503, f"the local {host} does not respond: {error}")
            return
        except ValueError as error:
            self.send_google_error(400, f"malformed request body: {error}")
            return
        # Uploads to a bucket that does not exist name it themselves.
        is_missing = response.status == http.HTTPStatus.NOT_FOUND
        if is_missing and self.command in {"GET", "HEAD"}:
            bucket = find_bucket(host, self.path)
            if bucket and not self._has_bucket(bucket):
                response.read()  # so that the connection can be used for the next request
                self.send_google_error(404, missing_bucket_text(bucket))
                return
        self._send_back(response, host)

    def _has_bucket(self, bucket: str) -> bool:
        """Return False only if fake-gcs-server reports that the bucket does not exist."""
        try:
            call("{}:{}".format(*self.server.storage), "GET", f"/storage/v1/b/{bucket}")
        except CallError as error:
            return error.status != http.HTTPStatus.NOT_FOUND
        except OSError:
            pass
        return True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _forward

    def _send_upstream(
        self, address: tuple[str, int], path: str, *, keeps_host: bool = False
    ) -> http.client.HTTPResponse:
        """Forward the request, with its body as a stream.

        `keeps_host`: whether the Host header stays. Only fake-gcs-server accepts Google's names in
        it.
        """
        if self._upstream is not None and (self._upstream.host, self._upstream.port) != address:
            self._disconnect()
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(*address, timeout=UPSTREAM_TIMEOUT_S)
            self._upstream.connect()  # http.client sets TCP_NODELAY itself
        upstream = self._upstream
        upstream.putrequest(self.command, path, skip_host=keeps_host, skip_accept_encoding=True)
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "").lower()
        dropped = set(HOP_HEADERS)
        if chunked:
            dropped.add("content-length")
        if not keeps_host:
            dropped.add("host")
        for name, value in self.headers.items():
            if name.lower() not in dropped:
                upstream.putheader(name, value)
        if chunked:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        self._stream_body(upstream, chunked=chunked)
        return upstream.getresponse()

    def _stream_body(self, upstream: http.client.HTTPConnection, *, chunked: bool) -> None:
        if chunked:
            for piece in read_chunks(self.rfile):
                upstream.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            upstream.send(b"0\r\n\r\n")
        else:
            for piece in read_exactly(self.rfile, int(self.headers.get("Content-Length", "0"))):
                upstream.send(piece)

    def _location(self, value: str, host: str) -> str:
        """Return a `Location` header with which a client of this host continues its upload here."""
        return public_location(value, host, self.server.storage)

    def _send_back(self, response: http.client.HTTPResponse, host: str) -> None:
        """Return the response to the client.

        A body of unknown length is chunked; an HTTP/1.0 client reads it until the connection
        closes.
        """
        self.send_response_only(response.status, response.reason)
        for name, value in response.headers.items():
            if name.lower() == "location":
                self.send_header(name, self._location(value, host))
            elif name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or response.status in (204, 304)
        chunked = not bodiless and response.length is None and self.request_version >= "HTTP/1.1"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not bodiless and response.length is None:
            self.close_connection = True
        self.end_headers()
        # `read1` returns what has arrived: a client that follows a stream must not wait.
        read = response.read1 if response.chunked else response.read
        while piece := read(CHUNK_BYTES):  # empty at the end
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        if response.will_close:
            self._disconnect()


def is_storage_host(host: str) -> bool:
    """Return whether the host serves Cloud Storage: its JSON API, its XML API, or a
    bucket by name.
    """
    return host in STORAGE_HOSTS or host.endswith(f".storage.{GOOGLE_DOMAIN}")


def storage_path(method: str, host: str, path: str) -> str:
    """Return the path at fake-gcs-server: the same, except for the two that it does not serve (see
    the module).
    """
    if host == XML_HOST and method in {"GET", "HEAD"} and not path.startswith(JSON_API_PATHS):
        name, _, query = path.lstrip("/").partition("?")
        bucket, _, object_name = name.partition("/")
        if object_name:
            encoded = object_name.replace("/", "%2F")
            more = f"&{query}" if query else ""
            return f"/download/storage/v1/b/{bucket}/o/{encoded}?alt=media{more}"
    return BUCKET_LAYOUT.sub(r"\1\2", path)


def public_location(location: str, host: str, storage: tuple[str, int]) -> str:
    """Replace fake-gcs-server's own address by the host that the client called.

    Other addresses stay.

    fake-gcs-server returns its `-external-url`, or `http://` and the Host header; neither leads
    through the proxy.
    """
    parts = urlsplit(location)
    if not parts.netloc:
        return location
    storage_host, port = storage
    own = {host, f"{storage_host}:{port}", f"localhost:{port}", f"0.0.0.0:{port}"}
    if parts.netloc not in own:
        return location
    return parts._replace(scheme="https", netloc=host).geturl()


def read_exactly(stream: BufferedIOBase, length: int) -> Iterator[bytes]:
    """Yield `length` bytes in pieces.

    Raises ConnectionResetError if the client disconnects before.
    """
    while length > 0:
        piece = stream.read(min(length, CHUNK_BYTES))
        if not piece:
            raise ConnectionResetError("the client disconnected before the end of its request")
        length -= len(piece)
        yield piece


def read_chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield the content of a chunked body without its trailers.

    Raises ValueError for a malformed size.
    """
    while size := int(stream.readline(1024).partition(b";")[0], 16):
        yield from read_exactly(stream, size)
        stream.readline(16)
    while stream.readline(65536).strip():
        pass
