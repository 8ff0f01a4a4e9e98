"""The functions that receive agents' events, over a control plane in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.serving import serving
from tests.support.world import World
from tests.unit.functions.senders import ACCOUNT, Sender
from trainmaster.settings import settings
from trainmaster.wiring import authentication, core_services
from trainmaster_emulators.machines.vm_tokens import TokenIssuer


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    """The issuer of the tokens by which agents prove which VM they run on."""
    return TokenIssuer()


@pytest.fixture
def keys(issuer: TokenIssuer) -> Iterator[str]:
    """A server that publishes the issuer's keys as Google does."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Cache-Control", "public, max-age=20000, must-revalidate")
            self.end_headers()
            self.wfile.write(json.dumps(issuer.certificates()).encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    with serving(server) as address:
        yield f"{address}/certs"


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch, issuer: TokenIssuer, keys: str) -> Iterator[Sender]:
    """Sends events of worker 0 of a submitted job to the functions, which authenticate them."""
    world = World()
    monkeypatch.setattr(core_services, "deps", lambda: world.deps)
    monkeypatch.setattr(core_services, "bus", lambda: world.bus)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_WORKER_SERVICE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("TRAINMASTER_IDENTITY_KEYS", keys)
    settings.cache_clear()
    authentication.tokens.cache_clear()
    world.submit()
    world.deliver()
    world.bus.drain()
    yield Sender(world, issuer)
    settings.cache_clear()
    authentication.tokens.cache_clear()
