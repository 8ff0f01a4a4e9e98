"""An HTTPS proxy through which programs that use fixed Google addresses reach the local stack.

TensorFlow's built-in `gs://` file system calls `https://www.googleapis.com/storage/v1/` and
`https://storage.googleapis.com`; no variable changes these addresses. It does honour `https_proxy`
and `CURL_CA_BUNDLE`:

    TensorFlow ── CONNECT www.googleapis.com:443 ──► this proxy ── plain HTTP ──► fake-gcs-server
              ◄── TLS, certificate from ca.pem ────►
    anything   ── CONNECT pypi.example:443 ────────► this proxy ── the same bytes ──► that host

Cloud Logging is answered by the stack's emulator of it, because ml_goodput_measurement writes
there. It listens on the loopback address only. For other Google hosts, such as
`pubsub.googleapis.com`, it answers 501, so that nothing on the local stack reaches the real Google
by accident. All other hosts are tunnelled unchanged.

`--state-dir` holds the certificate authority (`ca-key.pem`, `ca-cert.pem`), which is kept over
restarts because clients have loaded it, and `ca.pem`, the bundle for `CURL_CA_BUNDLE`: this
authority and the machine's others, for tunnelled hosts. TensorFlow opens a connection and reads the
bundle for every call: a call takes 2 ms with `ca-cert.pem` alone and 6.5 ms with the 170
authorities of `ca.pem` (measured). In a process that uses curl for nothing else,
`CURL_CA_BUNDLE=ca-cert.pem` with `REQUESTS_CA_BUNDLE=ca.pem` is the faster pair.

`storage_forwarder` corrects the differences between fake-gcs-server and Cloud Storage.
"""

import contextlib
import datetime
import socket
import ssl
import sys
import threading
from typing import Final
from urllib.parse import urlsplit

from trainmaster_emulators.process.certificates import GOOGLE_DOMAIN, prepare_certificates
from trainmaster_emulators.process.processes import split_address
from trainmaster_emulators.rest.command_line import EmulatorParser
from trainmaster_emulators.rest.server import in_background, stop_event
from trainmaster_emulators.services.storage_forwarder import (
    CHUNK_BYTES,
    ForwardingHandler,
    ForwardingServer,
    StorageHandler,
)

CONNECT_TIMEOUT_S: Final = 10.0


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = EmulatorParser("services.googleapis_proxy", "HTTPS proxy to the local Cloud Storage.")
    parser.add_port()
    parser.add_argument(
        "--storage",
        required=True,
        help="address of fake-gcs-server, for example http://127.0.0.1:4443",
    )
    parser.add_argument(
        "--logging", metavar="HOST:PORT", help="emulator that answers logging.googleapis.com"
    )
    parser.add_state_dir("the certificates")
    options = parser.parse_args(argv)
    storage = urlsplit(options.storage)
    if storage.scheme != "http" or storage.hostname is None or storage.port is None:
        parser.error(f"--storage must be http://HOST:PORT, not {options.storage!r}")

    stopped = stop_event()
    context = prepare_certificates(options.state_dir, datetime.datetime.now(datetime.UTC))
    server = ProxyServer(("127.0.0.1", options.port), (storage.hostname, storage.port), context)
    if options.logging:
        server.others = {"logging.googleapis.com": split_address(options.logging)}
    with in_background(server):
        bundle = options.state_dir / "ca.pem"
        print(
            f"googleapis proxy ready on 127.0.0.1:{server.server_port}, certificates in {bundle}",
            flush=True,
        )
        stopped.wait()
    return 0


class ProxyServer(ForwardingServer):
    """Listens for clients that send their connections to Google's APIs to this proxy."""

    def __init__(
        self, address: tuple[str, int], storage: tuple[str, int], context: ssl.SSLContext
    ) -> None:
        self.storage = storage
        self.context = context
        super().__init__(address, ConnectHandler)


class ConnectHandler(ForwardingHandler):
    """The outer layer: reads `CONNECT host:port`, then either terminates TLS or tunnels the
    connection.
    """

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
        self.send_google_error(
            405, "this proxy serves CONNECT only: set https_proxy, not http_proxy"
        )

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _accept(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.wfile.flush()

    def _serve_google(self) -> None:
        try:
            with self.server.context.wrap_socket(self.connection, server_side=True) as tls:
                StorageHandler(tls, self.client_address, self.server)
        except ssl.SSLEOFError:
            pass  # the client disconnected
        except ssl.SSLError as error:
            hint = "set the client's CURL_CA_BUNDLE to the proxy's ca.pem"
            print(
                f"googleapis proxy: TLS with a client failed ({error.reason}): {hint}",
                file=sys.stderr,
            )

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
            downstream = threading.Thread(
                target=copy_stream, args=(remote, self.connection), daemon=True
            )
            downstream.start()
            copy_stream(self.connection, remote)
            downstream.join()


def is_google_host(host: str) -> bool:
    """Return whether the host is one of `*.googleapis.com`, for which the proxy terminates TLS."""
    return host == GOOGLE_DOMAIN or host.endswith(f".{GOOGLE_DOMAIN}")


def copy_stream(source: socket.socket, sink: socket.socket) -> None:
    """Copy one direction of a tunnel until `source` ends, then shut down the writing side of
    `sink`.
    """
    with contextlib.suppress(OSError):
        while piece := source.recv(CHUNK_BYTES):  # empty at the end
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
