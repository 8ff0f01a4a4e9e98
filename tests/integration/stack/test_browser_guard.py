"""Each server of the local stack refuses requests of web pages, and serves clients."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from itertools import product
from pathlib import Path

import pytest

from tests.integration.compute.emulator import running_emulator
from tests.support.serving import serving
from tests.support.stack import recording_functions, reserved_ports
from trainmaster_emulators.logging.entries import Entries
from trainmaster_emulators.logging.server import LoggingServer
from trainmaster_emulators.machines.metadata_server import MetadataServer
from trainmaster_emulators.machines.metadata_tree import MetadataTree
from trainmaster_emulators.machines.vm_tokens import TokenIssuer
from trainmaster_emulators.process import service
from trainmaster_emulators.rest.server import listen
from trainmaster_emulators.services import functions_host, iam
from trainmaster_emulators.services.googleapis_proxy import ProxyServer
from trainmaster_emulators.stack.memory_control_plane import MemoryControlPlane

FROM_PAGES = {
    "a request of another origin": {"Origin": "http://attacker.example"},
    "a request of a sandboxed page": {"Origin": "null"},
    "a link of another site": {"Sec-Fetch-Site": "cross-site"},
    "an image on a page of this machine": {"Sec-Fetch-Site": "same-site"},
    "a script of the server's own origin": {"Sec-Fetch-Site": "same-origin"},
    "a name that was rebound to this machine": {"Host": "attacker.example:80"},
    "a name that begins with the address": {"Host": "127.0.0.1.attacker.example:80"},
}
FROM_CLIENTS: dict[str, dict[str, str]] = {
    "a client": {},
    "a client of localhost": {"Host": "localhost:80"},
    "an address that the user typed": {"Sec-Fetch-Site": "none"},
}


@contextmanager
def iam_server(_: Path) -> Iterator[str]:
    with serving(iam.listen(0, "p")) as address:
        yield address


@contextmanager
def logging_server(folder: Path) -> Iterator[str]:
    with serving(listen("127.0.0.1", 0, LoggingServer(Entries(folder / "entries")))) as address:
        yield address


@contextmanager
def metadata_server(_: Path) -> Iterator[str]:
    server = MetadataServer("127.0.0.1", MetadataTree({}), TokenIssuer(), identity=None)
    yield f"http://{server.address}"
    server.stop()


@contextmanager
def compute_emulator(folder: Path) -> Iterator[str]:
    with running_emulator(folder) as emulator:
        yield emulator.endpoint


@contextmanager
def memory_control_plane(_: Path) -> Iterator[str]:
    control_plane = MemoryControlPlane()
    yield f"http://{control_plane.address}"
    control_plane.close()


@contextmanager
def function_server(folder: Path) -> Iterator[str]:
    functions = recording_functions(folder / "functions")
    with reserved_ports() as ports:
        (planned,) = functions_host.services(functions, {"submit": ports.take()}, {})
        with service.run_alone(planned, folder / "log") as running:
            yield f"http://{running.address}"


@contextmanager
def googleapis_proxy(_: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with serving(ProxyServer(("127.0.0.1", 0), ("127.0.0.1", 9), context)) as address:
        yield address


SERVERS = (
    compute_emulator,
    function_server,
    googleapis_proxy,
    iam_server,
    logging_server,
    memory_control_plane,
    metadata_server,
)


@pytest.fixture(scope="module", params=SERVERS, ids=lambda server: server.__name__)
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of one server, `http://127.0.0.1:PORT`."""
    with request.param(tmp_path_factory.mktemp("server")) as url:
        yield url


def status(address: str, method: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, "/", b"{}" if method == "POST" else None, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(("method", "headers"), list(product(["GET", "POST"], FROM_PAGES.values())))
def test_request_of_a_web_page_is_refused(
    address: str, method: str, headers: dict[str, str]
) -> None:
    """The proxy does not look at Host, but serves nothing except CONNECT, which no web page can
    send.
    """
    code, body = status(address, method, headers)
    if code == HTTPStatus.METHOD_NOT_ALLOWED and "Host" in headers:
        assert b"this proxy serves CONNECT only" in body
        return
    assert code == HTTPStatus.FORBIDDEN
    (reason,) = (
        headers.get(name) for name in ("Origin", "Sec-Fetch-Site", "Host") if name in headers
    )
    assert str(reason) in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("headers", FROM_CLIENTS.values(), ids=FROM_CLIENTS)
def test_request_of_a_client_is_served(address: str, headers: dict[str, str]) -> None:
    _, body = status(address, "GET", headers)
    assert b"the local stack " not in body


def test_request_without_host_is_refused(address: str) -> None:
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        plain.sendall(b"POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        first_line = plain.makefile("rb").readline()
    assert first_line.split()[1] in (b"403", b"405")


def test_connection_to_a_function_outlasts_idle_seconds(tmp_path: Path) -> None:
    """A client that reuses its connection for a POST gets no answer if the server has closed it,
    and may not repeat.
    """
    with function_server(tmp_path) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
        for idle_s in (0, 2.5):  # gunicorn's default is 2 s
            time.sleep(idle_s)
            connection.request("POST", "/", b"{}")
            connection.getresponse().read()
        connection.close()
