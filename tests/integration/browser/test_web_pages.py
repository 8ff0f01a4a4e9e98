"""Web pages in a real Chromium attack every listener of a local stack.

They learn nothing and change nothing.

Attacking pages have three kinds of origin: another site; another port of this machine; and, after
DNS rebinding, the listener's own port under a foreign name. Chromium's own protection of local
addresses is turned off, because not every browser has it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import BrowserContext, Error, sync_playwright

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

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SCRIPT = (Path(__file__).parent / "attack.js").read_text(encoding="utf-8")
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
ZONE = "us-central1-a"
METRIC = "custom.googleapis.com/attacker"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: str = "{}"


def requests_for(project: str, bucket: str) -> dict[str, Request]:
    """Return requests of which at least one acts or reveals something at each listener of an
    unprotected stack.
    """
    vm = {
        "name": "attacker-vm",
        "machineType": f"zones/{ZONE}/machineTypes/n1-standard-1",
        "disks": [
            {
                "boot": True,
                "initializeParams": {"sourceImage": "projects/p/global/images/family/debian-12"},
            }
        ],
        "networkInterfaces": [{"network": "global/networks/default"}],
        "metadata": {"items": [{"key": "startup-script", "value": "true"}]},
        "description": "created by a web page",
    }
    message = {
        "data": "eyJqb2JJZCI6ICJhdHRhY2tfMSJ9",
        "messageId": "666",
        "publishTime": "2026-11-21T03:00:00Z",
    }
    entry = {
        "logName": f"projects/{project}/logs/attacker",
        "resource": {"type": "global"},
        "textPayload": "attacker",
    }
    instances = f"/compute/v1/projects/{project}/zones/{ZONE}/instances"
    documents = f"/v1/projects/{project}/databases/(default)/documents/jobs"
    schedules = f"/v1/projects/{project}/locations/us-central1/jobs"
    publication = {
        "topicName": f"projects/{project}/topics/trainmaster-submit",
        "data": message["data"],
    }
    schedule = {
        "name": f"{schedules[4:]}/attacker",
        "schedule": "* * * * *",
        "pubsubTarget": publication,
    }
    now = datetime.now(UTC).isoformat()
    series = {
        "metric": {"type": METRIC},
        "resource": {"type": "global", "labels": {"project_id": project}},
        "points": [{"interval": {"endTime": now}, "value": {"doubleValue": 1.0}}],
    }
    permissions = {"permissions": ["aiplatform.customJobs.create"], "other": ""}
    attribute = "/computeMetadata/v1/instance/guest-attributes/trainmaster/heartbeat"
    return {
        "insert a VM": Request("POST", instances, json.dumps(vm)),
        "list VMs": Request("GET", instances),
        "upload an object": Request(
            "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=attacker", '{"a":"b"}'
        ),
        "list objects": Request("GET", f"/storage/v1/b/{bucket}/o"),
        "write a log entry": Request(
            "POST", "/v2/entries:write", json.dumps({"entries": [entry], "other": ""})
        ),
        "read log entries": Request(
            "POST", "/v2/entries:list", json.dumps({"resourceNames": [f"projects/{project}"]})
        ),
        "publish a job": Request(
            "POST",
            f"/v1/projects/{project}/topics/trainmaster-submit:publish",
            json.dumps({"messages": [message]}),
        ),
        "create a document": Request(
            "POST", f"{documents}?documentId=attacker", json.dumps({"name": ""})
        ),
        "list documents": Request("GET", documents),
        "push an event": Request(
            "POST", "/", json.dumps({"message": message, "subscription": "attacker"})
        ),
        "list jobs": Request("GET", f"/v1/projects/{project}/jobs"),
        "create a schedule": Request("POST", schedules, json.dumps(schedule)),
        "list schedules": Request("GET", schedules),
        "write a time series": Request(
            "POST",
            f"/v3/projects/{project}/timeSeries",
            json.dumps({"timeSeries": [series], "other": ""}),
        ),
        "list metrics": Request("GET", f"/v3/projects/{project}/metricDescriptors"),
        "list prices": Request("GET", "/v1/services/6F81-5844-456A/skus"),
        "inject a fault": Request(
            "POST", "/emulator/v1/faults", '{"stockout_zones": ["attacker"]}'
        ),
        "read the state of an emulator": Request("GET", "/emulator/v1/health"),
        "test permissions": Request(
            "POST", f"/v1/projects/{project}:testIamPermissions", json.dumps(permissions)
        ),
        "read a VM's guest attributes": Request(
            "GET", f"{instances}/victim/getGuestAttributes?queryPath=trainmaster/"
        ),
        "write a guest attribute": Request("PUT", attribute, "attacker"),
        "read a VM's configuration": Request(
            "GET", "/computeMetadata/v1/instance/attributes/?recursive=true"
        ),
        "read a VM's token": Request(
            "GET", "/computeMetadata/v1/instance/service-accounts/default/token"
        ),
        "read the user's name": Request("GET", "/v1/userinfo"),
    }


@pytest.fixture(scope="module")
def chromium() -> str:
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install --no-install-recommends chromium")
    return path


@pytest.fixture(scope="module")
def stack(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
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


@contextmanager
def browser(chromium: str, hosts: set[str]) -> Iterator[BrowserContext]:
    """Run Chromium. Each of the hosts also has the foreign name that `rebound_name` returns."""
    rules = ",".join(f"MAP {rebound_name(host)} {host}" for host in sorted(hosts))
    with sync_playwright() as playwright:
        process = playwright.chromium.launch(
            executable_path=chromium,
            chromium_sandbox=os.getuid() != 0,
            args=[
                "--no-proxy-server",
                "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
                f"--host-resolver-rules={rules}",
            ],
        )
        yield process.new_context(ignore_https_errors=True)
        process.close()


def rebound_name(host: str) -> str:
    return f"rebound-{host.replace('.', '-')}.example"


@dataclass(frozen=True)
class Shot:
    """One request of a page."""

    manner: str
    target: str
    """Scheme and address, `http://HOST:PORT`."""
    name: str
    request: Request

    def as_json(self) -> dict[str, str]:
        url = self.target + self.request.path
        return {
            "manner": self.manner,
            "method": self.request.method,
            "url": url,
            "body": self.request.body,
        }


def shots(
    manners: Sequence[str], targets: Sequence[str], requests: dict[str, Request]
) -> list[Shot]:
    """Return each request in each manner to each target. Forms are posted only."""
    return [
        Shot(manner, target, name, request)
        for manner in manners
        for target in targets
        for name, request in requests.items()
        if manner != "form" or request.method == "POST"
    ]


def attack(context: BrowserContext, page_origin: str, planned: list[Shot]) -> dict[Shot, str]:
    """Send the requests from a page of that origin. Return what the page learned from each.

    The page does not come from the network. A browser that refuses to open the page cannot send
    anything.
    """
    page = context.new_page()
    page.route(
        f"{page_origin}/attack.html",
        lambda route: route.fulfill(
            content_type="text/html", body=f"<body><script>{SCRIPT}</script>"
        ),
    )
    try:
        page.goto(f"{page_origin}/attack.html")
        outcomes = page.evaluate(
            "(requests) => window.attack(requests)", [shot.as_json() for shot in planned]
        )
    except Error as error:
        if "ERR_UNSAFE_PORT" not in error.message:
            raise
        outcomes = ["failed"] * len(planned)
    finally:
        page.close()
    return dict(zip(planned, outcomes, strict=True))


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
    chromium: str, stack: LocalStack
) -> None:
    before = effects(stack)
    targets = [f"http://{address}" for address in listeners(stack)] + [
        f"https://{stack.state.endpoints.storage_tls}"
    ]
    learned = []
    with browser(chromium, {"127.0.0.1"}) as context:
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
    chromium: str, stack: LocalStack
) -> None:
    before = effects(stack)
    addresses = listeners(stack)
    learned = []
    with browser(chromium, {address.partition(":")[0] for address in addresses}) as context:
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


@dataclass
class UnprotectedServer:
    """A server that accepts every request and lets every origin read the response."""

    received: list[str] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def _accept(self) -> None:
                received.append(
                    self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                )
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Access-Control-Allow-Methods", "PUT")
                self.send_header(
                    "Access-Control-Allow-Headers", "authorization, content-type, metadata-flavor"
                )
                self.end_headers()
                self.wfile.write(b"a secret")

            do_GET = do_POST = do_PUT = do_OPTIONS = _accept

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler


def test_attacks_succeed_against_an_unprotected_server(chromium: str) -> None:
    requests = {"read": Request("GET", "/secret"), "write": Request("POST", "/change", '{"a":"b"}')}
    replacement = {"replace": Request("PUT", "/change", '{"a":"b"}')}
    server = UnprotectedServer()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), server.handler())) as address:
        port = address.rpartition(":")[2]
        rebound = f"http://{rebound_name('127.0.0.1')}:{port}"
        with browser(chromium, {"127.0.0.1"}) as context:
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


def test_browser_does_not_connect_to_blocked_ports(chromium: str) -> None:
    requests = {"write": Request("POST", "/change", '{"a":"b"}')}
    host = "127.84.250.1"
    with ExitStack() as stack, browser(chromium, {host}) as context:
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
