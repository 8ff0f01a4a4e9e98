"""Web pages in a real Chromium attack every listener of a local stack.

They learn nothing and change nothing.

Attacking pages have three kinds of origin: another site; another port of this machine; and, after
DNS rebinding, the listener's own port under a foreign name. Chromium's own protection of local
addresses is turned off, because not every browser has it.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.integration.browser.page_attacks import (
    ZONE,
    Request,
    UnprotectedServer,
    attack,
    rebound_name,
    requests_for,
    shots,
    victims_browser,
)
from tests.support.console_browser import installed_chromium
from tests.support.serving import serving
from tests.support.stack import LocalStack, eventually, local_stack
from trainmaster_emulators.process import processes
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.services import grpc_gate, http_gate

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.heavy(
        fact="a hostile web page reaches no service of the stack",
        quick="`integration/stack/test_browser_guard.py`",
    ),
    pytest.mark.timeout(600),
]
"""`make test` covers the guard of each server in tests/integration/stack/test_browser_guard.py."""

Victim = Callable[[set[str]], AbstractContextManager[BrowserContext]]
"""Runs the browser that opens the attacking page. Each of the hosts has a foreign name, too."""
"""Names of Chromium, in the order in which they are tried."""
CROSS_ORIGIN_ATTACKS = (
    ("http://attacker.example", "simple"),
    ("http://attacker.example", "readable"),
    ("http://attacker.example", "preflighted"),
    ("http://attacker.example", "form"),
    ("http://127.0.0.1:8000", "simple"),
    ("http://localhost:8000", "preflighted"),
)
"""Origin of the page, and manner of its requests."""
CROSS_ORIGIN_MANNERS = ("simple", "readable", "preflighted", "form")
REBOUND_MANNERS = ("readable", "preflighted")
NOTHING = ("failed", "opaque")
"""Outcomes from which a page learns nothing about the response."""
REFUSALS = ("403 ", "405 ")
"""Status 405 is the response of the googleapis proxy to everything that a web page can send."""


@pytest.fixture(scope="module")
def victim(browser: Browser) -> Victim:
    return partial(victims_browser, browser.browser_type, installed_chromium())


@pytest.fixture(scope="module")
def stack(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack with one VM, so that a metadata server listens, too.

    A realistic stack has all listeners of an ordinary one, and those of its IAM.
    """
    with local_stack(
        tmp_path_factory.mktemp("stack"), StackConfig(realistic=True, time_scale=0.01)
    ) as running:
        vm = requests_of(running)["insert a VM"]
        body = json.loads(vm.body) | {"name": "victim", "serviceAccounts": [{"email": "default"}]}
        body["metadata"]["items"] = [
            {"key": "startup-script", "value": "sleep 600"},
            {"key": "enable-guest-attributes", "value": "TRUE"},
        ]
        compute = running.state.endpoints.compute or ""

        def is_running() -> bool:
            """Insert the VM until it runs: a realistic stack sometimes has no capacity."""
            try:
                return bool(call(compute, "GET", f"{vm.path}/victim")["status"] == "RUNNING")
            except CallError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                call(compute, "POST", vm.path, body)
                return False

        eventually(is_running)
        yield running


def requests_of(stack: LocalStack) -> dict[str, Request]:
    return requests_for(stack.state.config.project, stack.state.config.bucket)


def listeners(stack: LocalStack) -> list[str]:
    """Return `host:port` of every TCP port on which a process of the stack listens, also of unknown
    ones.
    """
    addresses = [
        connection.laddr
        for process in processes.list_processes(stack.state.id)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    return sorted({f"{reachable(address.ip)}:{address.port}" for address in addresses})


def reachable(ip: str) -> str:
    """Return an address at which a listener on that one is reached: listeners on all addresses
    listen on loopback.
    """
    address = ipaddress.ip_address(ip.removeprefix("::ffff:"))
    return "127.0.0.1" if address.is_unspecified else str(address)


def effects(stack: LocalStack) -> dict[str, Any]:
    """Return everything that the requests would change."""
    endpoints, config = stack.state.endpoints, stack.state.config
    documents = f"/v1/projects/{config.project}/databases/(default)/documents"
    instances = f"/compute/v1/projects/{config.project}/zones/{ZONE}/instances"
    compute = endpoints.compute or ""
    return {
        "VMs": names(call(compute, "GET", instances), "items"),
        "guest attributes": written_by_pages(
            compute, f"{instances}/victim/getGuestAttributes?queryPath=trainmaster/"
        ),
        "faults": call(compute, "GET", "/emulator/v1/faults"),
        "metrics": call(
            endpoints.monitoring, "GET", f"/v3/projects/{config.project}/metricDescriptors"
        ),
        "objects": names(
            call(endpoints.storage, "GET", f"/storage/v1/b/{config.bucket}/o"), "items"
        ),
        "log": call(
            endpoints.logging,
            "POST",
            "/v2/entries:list",
            {"resourceNames": [f"projects/{config.project}"]},
        ),
        # Its first call takes long on a busy machine.
        "jobs": names(
            call(endpoints.firestore, "GET", f"{documents}/jobs", timeout_s=60), "documents"
        ),
        "schedules": names(
            call(
                endpoints.scheduler or "",
                "GET",
                f"/v1/projects/{config.project}/locations/us-central1/jobs",
            ),
            "jobs",
        ),
        "rejections": names(
            call(endpoints.firestore, "GET", f"{documents}/rejections"), "documents"
        ),
    }


def written_by_pages(compute: str, path: str) -> list[str]:
    """Return the values of the VM's guest attributes; none if it has no attribute."""
    try:
        return [item["value"] for item in call(compute, "GET", path)["queryValue"]["items"]]
    except CallError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return []


def names(listing: dict[str, Any], key: str) -> list[str]:
    return [item["name"] for item in listing.get(key, [])]


def test_every_service_of_the_stack_is_attacked(stack: LocalStack) -> None:
    """A service whose process or port is not found would pass the attacks below."""
    addresses = {service.address for service in stack.state.services.values()} | set(
        stack.state.endpoints.addresses()
    )
    assert {address for address in addresses if address} <= set(listeners(stack))
    gates = {grpc_gate.NAME, http_gate.NAME}
    assert gates | {"monitoring", "billing", "api", "iam"} <= set(stack.state.services)


def test_page_of_another_origin_learns_and_changes_nothing(
    victim: Victim, stack: LocalStack
) -> None:
    before = effects(stack)
    targets = [f"http://{address}" for address in listeners(stack)] + [
        f"https://{stack.state.endpoints.storage_tls}"
    ]
    learned = []
    with victim({"127.0.0.1"}) as context:
        for origin, manner in CROSS_ORIGIN_ATTACKS:
            outcomes = attack(context, origin, shots([manner], targets, requests_of(stack)))
            learned += [
                (origin, shot, outcome)
                for shot, outcome in outcomes.items()
                if outcome not in NOTHING
            ]
    assert learned == []
    assert effects(stack) == before


def test_page_with_a_rebound_name_learns_and_changes_nothing(
    victim: Victim, stack: LocalStack
) -> None:
    before = effects(stack)
    addresses = listeners(stack)
    learned = []
    with victim({address.partition(":")[0] for address in addresses}) as context:
        for address in addresses:
            host, _, port = address.partition(":")
            scheme = "https" if address == stack.state.endpoints.storage_tls else "http"
            origin = f"{scheme}://{rebound_name(host)}:{port}"
            outcomes = attack(context, origin, shots(REBOUND_MANNERS, [origin], requests_of(stack)))
            learned += [
                (shot, outcome) for shot, outcome in outcomes.items() if not is_refusal(outcome)
            ]
    assert learned == []
    assert effects(stack) == before


def is_refusal(outcome: str) -> bool:
    """Return whether the page learned only that a listener exists."""
    return outcome in NOTHING or outcome.startswith(REFUSALS)


def test_attacks_succeed_against_an_unprotected_server(victim: Victim) -> None:
    requests = {"read": Request("GET", "/secret"), "write": Request("POST", "/change", '{"a":"b"}')}
    replacement = {"replace": Request("PUT", "/change", '{"a":"b"}')}
    server = UnprotectedServer()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), server.handler())) as address:
        port = address.rpartition(":")[2]
        rebound = f"http://{rebound_name('127.0.0.1')}:{port}"
        with victim({"127.0.0.1"}) as context:
            for origin, target, manner, outcome in (
                ("http://attacker.example", address, "simple", "opaque"),
                ("http://attacker.example", address, "form", "opaque"),
                ("http://attacker.example", address, "readable", "200 a secret"),
                ("http://attacker.example", address, "preflighted", "200 a secret"),
                (rebound, rebound, "readable", "200 a secret"),
                (rebound, rebound, "preflighted", "200 a secret"),
            ):
                server.received.clear()
                possible = requests | (replacement if manner == "preflighted" else {})
                outcomes = attack(context, origin, shots([manner], [target], possible))
                assert set(outcomes.values()) == {outcome}, manner
                assert any('"a":"b' in body for body in server.received), manner


def test_browser_does_not_connect_to_blocked_ports(victim: Victim) -> None:
    requests = {"write": Request("POST", "/change", '{"a":"b"}')}
    host = "127.84.250.1"
    with ExitStack() as stack, victim({host}) as context:
        servers = {}
        for port in processes.BROWSER_BLOCKED_PORTS:
            servers[port] = UnprotectedServer()
            stack.enter_context(serving(ThreadingHTTPServer((host, port), servers[port].handler())))
        targets = [f"http://{host}:{port}" for port in servers]
        for manner in CROSS_ORIGIN_MANNERS:
            attack(context, "http://attacker.example", shots([manner], targets, requests))
        for port in servers:
            origin = f"http://{rebound_name(host)}:{port}"
            attack(context, origin, shots(REBOUND_MANNERS, [origin], requests))
        assert {port: server.received for port, server in servers.items() if server.received} == {}
