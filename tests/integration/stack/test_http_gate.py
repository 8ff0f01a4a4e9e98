"""The IAM of Google's JSON APIs: each account has what infra/ grants, and a refusal names the
permission.

A gate is a server before an emulator. It serves one account, a function or a VM, and passes only
calls that the account may make on Google Cloud: the emulators themselves check no permission.
"""

from __future__ import annotations

import http.client
import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.refusals import read_refusals
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.realism.call_access import INFRA, TABLE_FILE
from trainmaster_emulators.realism.compute_access import ROLES_FILE
from trainmaster_emulators.realism.http_access import Api
from trainmaster_emulators.rest.server import in_background
from trainmaster_emulators.services import iam
from trainmaster_emulators.services.http_gate import GateServer

PROJECT = "/v1/projects/p"
TPU = "/v2/projects/p/locations/us-central1-b"
WORKER = "trainmaster-worker@p.iam.gserviceaccount.com"
NODE = {"serviceAccount": {"email": WORKER}}
INSTANCES = "/compute/v1/projects/p/zones/us-central1-a/instances"
TAG = f"{PROJECT}/locations/us-central1/repositories/r/packages/i/tags/latest"


class GrantedCall(NamedTuple):
    """A call that an account may make."""

    account: str
    method: str
    path: str
    permission: str
    """The permission that decides."""
    body: dict[str, Any]


GRANTED = [
    pytest.param(call, id=f"{call.account}-{call.permission}")
    for call in itertools.starmap(
        GrantedCall,
        (
            (
                "worker",
                "POST",
                f"{PROJECT}/topics/trainmaster-vm-ready:publish",
                "pubsub.topics.publish",
                {},
            ),
            (
                "worker",
                "POST",
                f"{PROJECT}/topics/trainmaster-replica-exit:publish",
                "pubsub.topics.publish",
                {},
            ),
            (
                "worker",
                "POST",
                f"{PROJECT}/topics/trainmaster-maintenance:publish",
                "pubsub.topics.publish",
                {},
            ),
            ("worker", "POST", "/v2/entries:write", "logging.logEntries.create", {}),
            ("worker", "POST", "/v3/projects/p/timeSeries", "monitoring.timeSeries.create", {}),
            ("worker", "DELETE", f"{TPU}/nodes/tm-1", "tpu.nodes.delete", {}),
            ("submit", "POST", "/v2/entries:write", "logging.logEntries.create", {}),
            ("api", "GET", f"{PROJECT}/serviceAccounts/{WORKER}", "iam.serviceAccounts.get", {}),
            (
                "upload",
                "GET",
                f"{PROJECT}/secrets/s/versions/latest",
                "secretmanager.versions.get",
                {},
            ),
            ("submit", "GET", TAG, "artifactregistry.tags.get", {}),
            (
                "submit",
                "GET",
                TAG.replace("tags/latest", "versions/sha256:1"),
                "artifactregistry.versions.get",
                {},
            ),
            ("provision", "GET", f"{TPU}/nodes", "tpu.nodes.list", {}),
            ("provision", "POST", f"{TPU}/nodes", "iam.serviceAccounts.actAs", NODE),
            (
                "provision",
                "POST",
                "/v2alpha1/projects/p/locations/us-central1-b/queuedResources",
                "iam.serviceAccounts.actAs",
                {"tpu": {"nodeSpec": [{"node": NODE}]}},
            ),
            (
                "provision",
                "GET",
                "/compute/v1/projects/p/aggregated/instances",
                "compute.instances.list",
                {},
            ),
            (
                "provision",
                "POST",
                f"{INSTANCES}/1/setLabels",
                "compute.instances.setLabels",
                {"labels": {"a": "b"}},
            ),
            ("console", "POST", "/v2/entries:list", "logging.logEntries.list", {}),
            (
                "console",
                "GET",
                "/v3/projects/p/timeSeries?filter=x",
                "monitoring.timeSeries.list",
                {},
            ),
            (
                "console",
                "GET",
                "/v3/projects/p/metricDescriptors",
                "monitoring.metricDescriptors.list",
                {},
            ),
            ("console_operator", "POST", "/v2/entries:write", "logging.logEntries.create", {}),
        ),
    )
]


class Upstream(BaseHTTPRequestHandler):
    """Returns path and body of each request; to a question about a VM's id, a name."""

    protocol_version = "HTTP/1.1"

    def _echo(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer = {"path": self.path, "body": json.loads(body or b"{}")}
        if self.path.startswith("/emulator/v1/zones/us-central1-a/vms/"):
            answer = {"name": "tm-1" if self.path.endswith("/1") else "database"}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _echo

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Serve during the block. The value is the address, `127.0.0.1:PORT`."""
    with in_background(server):
        yield f"127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Upstream)) as address:
        yield address


def ask(gate: str, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """Make a call at this address. Return the HTTP status and the JSON of the response."""
    connection = http.client.HTTPConnection(gate, timeout=5)
    try:
        connection.request(method, path, json.dumps(body or {}) if method != "GET" else None)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@contextmanager
def gate(account: str, upstream: str, infra: Path = INFRA) -> Iterator[str]:
    with serving(GateServer(0, account, infra, dict.fromkeys(Api, upstream), "p")) as address:
        yield address


def infra_without(folder: Path, account: str, permission: str, path: str) -> Path:
    """Return a copy of infra/ in which the account lacks the permission: each row or role that
    could grant it.
    """
    for name in (TABLE_FILE, ROLES_FILE):
        shutil.copy(INFRA / name, folder / name)
    topic = path.rpartition("/trainmaster-")[2].removesuffix(":publish")
    roles = {
        "pubsub.topics.publish": f"roles/pubsub.publisher,topic {topic},",
        "logging.logEntries.create": "roles/logging.logWriter,",
        "logging.logEntries.list": "roles/logging.viewer,",
        "monitoring.timeSeries.create": "roles/monitoring.metricWriter,",
        "tpu.nodes.delete": "trainmasterTpuFuse (iam.tf),",
        "tpu.nodes.list": "roles/tpu.admin,",
        "iam.serviceAccounts.actAs": "roles/iam.serviceAccountUser,",
    }
    if permission.startswith("monitoring.") and account == "console":
        roles[permission] = "roles/monitoring.viewer,"
    file = TABLE_FILE if permission in roles else ROLES_FILE
    lines = (folder / file).read_text(encoding="utf-8").splitlines(keepends=True)
    row = f"{account},{roles[permission]}" if permission in roles else f'"{permission}",'
    left = [line for line in lines if row not in line]
    assert len(left) == len(lines) - 1, f"{row} is not in exactly one line of {file}"
    (folder / file).write_text("".join(left), encoding="utf-8")
    return folder


@pytest.mark.parametrize("granted", GRANTED)
def test_granted_call_reaches_the_emulator(granted: GrantedCall, upstream: str) -> None:
    with gate(granted.account, upstream) as address:
        answer = ask(address, granted.method, granted.path, granted.body)
    assert answer == (200, {"path": granted.path, "body": granted.body})


@pytest.mark.parametrize("granted", GRANTED)
def test_call_is_refused_without_its_grant_and_the_refusal_names_it(
    granted: GrantedCall, upstream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account, method, path, permission, body = granted
    with gate(account, upstream, infra_without(tmp_path, account, permission, path)) as address:
        status, answer = ask(address, method, path, body)
    message = answer["error"]["message"]
    assert (status, answer["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert message.startswith(f"{account} does not have the permission {permission} on ")
    assert read_refusals(capsys.readouterr().out) == {message: 1}


@pytest.mark.parametrize(
    ("account", "method", "path", "permission"),
    [
        (
            "worker",
            "POST",
            f"{PROJECT}/topics/trainmaster-submit:publish",
            "pubsub.topics.publish on topic submit",
        ),
        ("worker", "POST", "/v2/entries:list", "logging.logEntries.list on project"),
        (
            "worker",
            "GET",
            "/compute/v1/projects/p/aggregated/instances",
            "compute.instances.list on project",
        ),
        (
            "worker",
            "GET",
            f"{PROJECT}/secrets/s/versions/1",
            "secretmanager.versions.get on project",
        ),
        ("console", "POST", "/v2/entries:write", "logging.logEntries.create on project"),
        ("maintenance", "DELETE", f"{TPU}/nodes/tm-1", "tpu.nodes.delete on project"),
    ],
)
def test_call_that_infra_does_not_grant_is_refused(
    account: str, method: str, path: str, permission: str, upstream: str
) -> None:
    with gate(account, upstream) as address:
        status, answer = ask(address, method, path)
    assert (status, answer["error"]["message"]) == (
        403,
        f"{account} does not have the permission {permission}",
    )


@pytest.mark.parametrize(
    ("account", "method", "path"),
    [
        ("submit", "DELETE", "/v2/projects/p/logs/l"),
        ("provision", "POST", "/batch/compute/v1"),
        ("provision", "POST", f"{INSTANCES}/1/reset"),
        ("worker", "POST", "/emulator/v1/faults"),
    ],
)
def test_unknown_call_is_refused_with_the_remedy(
    account: str, method: str, path: str, upstream: str
) -> None:
    with gate(account, upstream) as address:
        status, answer = ask(address, method, path)
    assert status == 403
    assert f"add the permissions of {method} {path}" in answer["error"]["message"]


@pytest.mark.parametrize("vm", ["2", "database"])
def test_call_for_a_vm_outside_the_condition_is_refused(vm: str, upstream: str) -> None:
    with gate("provision", upstream) as address:
        status, answer = ask(address, "DELETE", f"{INSTANCES}/{vm}")
    assert (status, answer["error"]["errors"][0]["reason"]) == (403, "forbidden")
    assert answer["error"]["message"].endswith("permits VMs named tm-* only, not database")


def test_addresses_of_replicas_need_no_permission(upstream: str) -> None:
    with gate("provision", upstream) as address:
        status, _ = ask(address, "GET", "/emulator/v1/address?name=tm-1")
    assert status == 200


def test_question_about_the_caller_of_the_api_needs_no_grant(upstream: str) -> None:
    with gate("api", upstream) as address:
        status, _ = ask(address, "POST", f"{PROJECT}/serviceAccounts/{WORKER}:testIamPermissions")
    assert status == 200


def test_vm_reads_a_secret_only_with_a_grant_of_its_owner() -> None:
    policy = {
        "bindings": [
            {"role": "roles/secretmanager.secretAccessor", "members": [f"serviceAccount:{WORKER}"]}
        ]
    }
    with serving(iam.listen(0, "p")) as secrets, gate("worker", secrets) as address:
        call(secrets, "POST", f"{PROJECT}/secrets?secretId=key", {})
        call(
            secrets, "POST", f"{PROJECT}/secrets/key:addVersion", {"payload": {"data": "c2VjcmV0"}}
        )
        refused = ask(address, "GET", f"{PROJECT}/secrets/key/versions/latest:access")
        missing = ask(address, "GET", f"{PROJECT}/secrets/other/versions/latest:access")
        call(secrets, "POST", f"{PROJECT}/secrets/key:setIamPolicy", {"policy": policy})
        granted = ask(address, "GET", f"{PROJECT}/secrets/key/versions/latest:access")
    (refused_status, refusal), (missing_status, _) = refused, missing
    assert refused_status == missing_status == 403
    assert refusal["error"]["message"].endswith("secretmanager.versions.access on secret key")
    assert granted == (
        200,
        {"name": "projects/p/secrets/key/versions/1", "payload": {"data": "c2VjcmV0"}},
    )


class UploadUpstream(BaseHTTPRequestHandler):
    """Begins a resumable upload, as fake-gcs-server does: under the host that was called."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Location", f"http://{self.headers['Host']}/upload/storage/v1/b/b/o?id=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_resumable_upload_continues_at_the_gate() -> None:
    with (
        serving(ThreadingHTTPServer(("127.0.0.1", 0), UploadUpstream)) as upstream,
        serving(
            GateServer(0, "worker", INFRA, dict.fromkeys(Api, upstream), "p", ("b", "stage"))
        ) as address,
    ):
        connection = http.client.HTTPConnection(address, timeout=5)
        connection.request("POST", "/upload/storage/v1/b/b/o?uploadType=resumable&name=r", "{}")
        response = connection.getresponse()
        connection.close()
    location = f"http://{address}/upload/storage/v1/b/b/o?id=1"
    assert (response.status, response.headers["Location"]) == (200, location)
