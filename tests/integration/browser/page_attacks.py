"""Requests of an attacking web page to listeners of a local stack, in a real Chromium."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from playwright.sync_api import BrowserContext, BrowserType, Error

SCRIPT = (Path(__file__).parent / "attack.js").read_text(encoding="utf-8")
"""Defines `window.attack`, which sends requests and returns what the page learned from each."""
ZONE = "us-central1-a"
METRIC = "custom.googleapis.com/attacker"


@dataclass(frozen=True)
class Request:
    """A request to any listener."""

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
        "name": f"{schedules.removeprefix('/v1/')}/attacker",
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


@contextmanager
def victims_browser(
    chromium: BrowserType, program: str, hosts: set[str]
) -> Iterator[BrowserContext]:
    """Run Chromium, the program. Each of the hosts also has the foreign name that `rebound_name`
    returns.

    `chromium`: that of a browser that runs: a process cannot start Playwright twice.
    """
    rules = ",".join(f"MAP {rebound_name(host)} {host}" for host in sorted(hosts))
    process = chromium.launch(
        executable_path=program,
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
    """How attack.js sends it, such as `form`."""
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
