"""An HTTPS proxy through which programs that use fixed Google addresses reach the local stack.

TensorFlow's built-in `gs://` file system calls `https://www.googleapis.com/storage/v1/` and
`https://storage.googleapis.com`; no variable changes these addresses. It does honour `https_proxy` and
`CURL_CA_BUNDLE`:

    TensorFlow ── CONNECT www.googleapis.com:443 ──► this proxy ── plain HTTP ──► fake-gcs-server
              ◄── TLS, certificate from ca.pem ────►
    anything   ── CONNECT pypi.example:443 ────────► this proxy ── the same bytes ──► that host

It listens on the loopback address only. Google hosts without object storage (`pubsub.googleapis.com`, …) get status
501, so that nothing on the local stack reaches the real Google by accident. All other hosts are tunnelled unchanged.

`--state-dir` holds the certificate authority (`ca-key.pem`, `ca-cert.pem`), which is kept over restarts because clients
have loaded it, and `ca.pem`, the bundle for `CURL_CA_BUNDLE`: this authority and the machine's others, for tunnelled
hosts. TensorFlow opens a connection and reads the bundle for every call: a call takes 2 ms with `ca-cert.pem` alone and
6.5 ms with the 170 authorities of `ca.pem` (measured). In a process that uses curl for nothing else,
`CURL_CA_BUNDLE=ca-cert.pem` with `REQUESTS_CA_BUNDLE=ca.pem` is the faster pair.

The proxy corrects these differences between fake-gcs-server and Cloud Storage (each has a test):

- The `Location` of a resumable upload contains fake-gcs-server's address. The proxy replaces it by its own host.
- `https://storage.googleapis.com/BUCKET/OBJECT`, where TensorFlow reads objects, works in fake-gcs-server only if that
  host is its `-public-host`, which other clients need with another value. The proxy calls the JSON API's download URL.
- fake-gcs-server has no `storageLayout` of a bucket, which TensorFlow gets before it renames a directory. The proxy
  returns the bucket itself: it has all fields of the layout except `hierarchicalNamespace`, whose absence means false.

Not corrected: with `-backend filesystem`, the object `d/` that `makedirs` writes is not listed, so `isdir` returns
false until the directory contains a file.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import re
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from emulators.stack.certificates import GOOGLE_DOMAIN, prepare_certificates

XML_HOST: Final = "storage.googleapis.com"
STORAGE_HOSTS: Final = frozenset({"www.googleapis.com", XML_HOST})
JSON_API_PATHS: Final = ("/storage/v1/", "/upload/", "/download/", "/batch/", "/resumable/")
BUCKET_LAYOUT: Final = re.compile(r"^(/storage/v1/b/[^/?]+)/storageLayout(\?.*)?$")
CHUNK_BYTES: Final = 1 << 18
CONNECT_TIMEOUT_S: Final = 10.0
UPSTREAM_TIMEOUT_S: Final = 120.0
IDLE_TIMEOUT_S: Final = 300.0
# Headers that a proxy must not forward. Source: RFC 9110 section 7.6.1. `Expect` has been handled by the proxy.
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


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m emulators.services.googleapis_proxy", description="HTTPS proxy to the local Cloud Storage."
    )
    parser.add_argument("--port", type=int, required=True, help="loopback port to listen on; 0 takes a free one")
    parser.add_argument(
        "--storage", required=True, help="address of fake-gcs-server, for example http://127.0.0.1:4443"
    )
    parser.add_argument("--state-dir", type=Path, required=True, help="directory of the certificates")
    options = parser.parse_args(argv)
    storage = urlsplit(options.storage)
    if storage.scheme != "http" or storage.hostname is None or storage.port is None:
        parser.error(f"--storage must be http://HOST:PORT, not {options.storage!r}")

    stopped = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stopped.set())
    context = prepare_certificates(options.state_dir, datetime.datetime.now(datetime.UTC))
    with ProxyServer(("127.0.0.1", options.port), (storage.hostname, storage.port), context) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        print(
            f"googleapis proxy ready on 127.0.0.1:{server.server_port}, certificates in {options.state_dir / 'ca.pem'}",
            flush=True,
        )
        stopped.wait()
        server.shutdown()
    return 0


class ProxyServer(ThreadingHTTPServer):
    """Runs one daemon thread per client connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], storage: tuple[str, int], context: ssl.SSLContext) -> None:
        self.storage = storage
        self.context = context
        super().__init__(address, ConnectHandler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect during a request, as killed VMs do; log any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class QuietHandler(BaseHTTPRequestHandler):
    """Base of both layers: HTTP/1.1, no access log, errors in Google's JSON format."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a training job makes thousands of calls, and fake-gcs-server logs each of them."""

    def handle_expect_100(self) -> bool:
        """Send `100 Continue` at once. If it stayed in the buffer, curl would wait one second per upload."""
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    def send_google_error(self, status: int, message: str) -> None:
        """Send an error of Google's JSON APIs, and close the connection, because the request's body may be unread."""
        body = json.dumps(
            {"error": {"code": status, "message": message, "errors": [{"reason": "localStack", "message": message}]}}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        self.close_connection = True


class ConnectHandler(QuietHandler):
    """The outer layer: reads `CONNECT host:port`, then either terminates TLS or tunnels the connection."""

    server: ProxyServer

    def do_CONNECT(self) -> None:
        """Open the requested tunnel. The connection is closed when the tunnel ends."""
        self.close_connection = True
        host, _, port = self.path.rpartition(":")
        host = host.strip("[]").lower()
        if not host or not port.isdecimal():
            self.send_google_error(400, f"CONNECT needs host:port, not {self.path!r}")
        elif is_google_host(host):
            self._accept()
            self._serve_google()
        else:
            self._tunnel(host, int(port))

    def _refuse(self) -> None:
        self.send_google_error(405, "this proxy serves CONNECT only: set https_proxy, not http_proxy")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _accept(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.wfile.flush()

    def _serve_google(self) -> None:
        try:
            with self.server.context.wrap_socket(self.connection, server_side=True) as tls:
                GoogleHandler(tls, self.client_address, self.server)
        except ssl.SSLEOFError:
            pass  # the client disconnected
        except ssl.SSLError as error:
            hint = "set the client's CURL_CA_BUNDLE to the proxy's ca.pem"
            print(f"googleapis proxy: TLS with a client failed ({error.reason}): {hint}", file=sys.stderr)

    def _tunnel(self, host: str, port: int) -> None:
        try:
            remote = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            self.send_google_error(502, f"cannot reach {host}:{port}: {error}")
            return
        with remote:
            for connection in (remote, self.connection):
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._accept()
            downstream = threading.Thread(target=copy_stream, args=(remote, self.connection), daemon=True)
            downstream.start()
            copy_stream(self.connection, remote)
            downstream.join()


class GoogleHandler(QuietHandler):
    """The inner layer: forwards the decrypted HTTP/1.1 requests to fake-gcs-server.

    Each client connection has its own kept-alive connection to fake-gcs-server, so requests stay in order.
    """

    server: ProxyServer
    _upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        """Close the connections to fake-gcs-server and to the client."""
        if self._upstream is not None:
            self._upstream.close()
        super().finish()

    def _forward(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0].lower()
        if not is_storage_host(host):
            self.send_google_error(501, f"the local stack serves Cloud Storage only, not {host or 'this service'}")
            return
        try:
            response = self._send_upstream(host)
        except (OSError, http.client.HTTPException) as error:
            self.send_google_error(503, f"the local Cloud Storage does not respond: {error}")  # clients retry on 503
            return
        except ValueError as error:
            self.send_google_error(400, f"malformed request body: {error}")
            return
        self._send_back(response, host)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _forward

    def _send_upstream(self, host: str) -> http.client.HTTPResponse:
        """Forward the request. The body is streamed."""
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(*self.server.storage, timeout=UPSTREAM_TIMEOUT_S)
            self._upstream.connect()  # http.client sets TCP_NODELAY itself
        upstream = self._upstream
        upstream.putrequest(
            self.command, storage_path(self.command, host, self.path), skip_host=True, skip_accept_encoding=True
        )
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "").lower()
        for name, value in self.headers.items():
            if name.lower() not in HOP_HEADERS and not (chunked and name.lower() == "content-length"):
                upstream.putheader(name, value)
        if chunked:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        if chunked:
            for piece in read_chunks(self.rfile):
                upstream.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            upstream.send(b"0\r\n\r\n")
        else:
            for piece in read_exactly(self.rfile, int(self.headers.get("Content-Length", "0"))):
                upstream.send(piece)
        return upstream.getresponse()

    def _send_back(self, response: http.client.HTTPResponse, host: str) -> None:
        """Return the response to the client.

        A body of unknown length is chunked; an HTTP/1.0 client reads it until the connection closes.
        """
        self.send_response_only(response.status, response.reason)
        for name, value in response.headers.items():
            if name.lower() == "location":
                self.send_header(name, public_location(value, host, self.server.storage))
            elif name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or response.status in (204, 304)
        chunked = not bodiless and response.length is None and self.request_version >= "HTTP/1.1"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not bodiless and response.length is None:
            self.close_connection = True
        self.end_headers()
        while piece := response.read1(CHUNK_BYTES) if response.chunked else response.read(CHUNK_BYTES):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        if response.will_close and self._upstream is not None:
            self._upstream.close()
            self._upstream = None


def is_google_host(host: str) -> bool:
    """Return whether the host is one of `*.googleapis.com`, for which the proxy terminates TLS."""
    return host == GOOGLE_DOMAIN or host.endswith(f".{GOOGLE_DOMAIN}")


def is_storage_host(host: str) -> bool:
    """Return whether the host serves Cloud Storage: its JSON API, its XML API, or a bucket by name."""
    return host in STORAGE_HOSTS or host.endswith(f".storage.{GOOGLE_DOMAIN}")


def storage_path(method: str, host: str, path: str) -> str:
    """Return the path at fake-gcs-server: the same, except for the two that it does not serve (see the module)."""
    if host == XML_HOST and method in {"GET", "HEAD"} and not path.startswith(JSON_API_PATHS):
        name, _, query = path.lstrip("/").partition("?")
        bucket, _, object_name = name.partition("/")
        if object_name:
            encoded = object_name.replace("/", "%2F")
            return f"/download/storage/v1/b/{bucket}/o/{encoded}?alt=media{'&' * bool(query)}{query}"
    return BUCKET_LAYOUT.sub(r"\1\2", path)


def public_location(location: str, host: str, storage: tuple[str, int]) -> str:
    """Replace fake-gcs-server's own address by the host that the client called. Other addresses stay.

    fake-gcs-server returns its `-external-url`, or `http://` and the Host header; neither leads through the proxy.
    """
    parts = urlsplit(location)
    if not parts.netloc:
        return location
    own = {host, f"{storage[0]}:{storage[1]}", f"localhost:{storage[1]}", f"0.0.0.0:{storage[1]}"}
    return parts._replace(scheme="https", netloc=host).geturl() if parts.netloc in own else location


def read_exactly(stream: BufferedIOBase, length: int) -> Iterator[bytes]:
    """Yield `length` bytes in pieces. Raises ConnectionResetError if the client disconnects before."""
    while length > 0:
        piece = stream.read(min(length, CHUNK_BYTES))
        if not piece:
            raise ConnectionResetError("the client disconnected before the end of its request")
        length -= len(piece)
        yield piece


def read_chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    """Yield the content of a chunked body without its trailers. Raises ValueError for a malformed size."""
    while size := int(stream.readline(1024).partition(b";")[0], 16):
        yield from read_exactly(stream, size)
        stream.readline(16)
    while stream.readline(65536).strip():
        pass


def copy_stream(source: socket.socket, sink: socket.socket) -> None:
    """Copy one direction of a tunnel until `source` ends, then shut down the writing side of `sink`."""
    with contextlib.suppress(OSError):
        while piece := source.recv(CHUNK_BYTES):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
