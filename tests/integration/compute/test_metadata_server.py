"""The metadata server, by plain HTTP and by google-auth."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import google.auth.transport.requests
import pytest
from google.auth import exceptions, jwt
from google.oauth2 import id_token

from tests.integration.compute.emulator import Emulator
from tests.support.stack import eventually
from trainmaster_emulators.machines.metadata_server import MetadataServer
from trainmaster_emulators.machines.metadata_tree import MetadataTree, Secret
from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity

NOW = datetime.now(UTC)
IDENTITY = VmIdentity(
    "vm@p.iam.gserviceaccount.com",
    "p",
    project_number=4711,
    zone="us-central1-a",
    instance_id=99,
    instance_name="vm",
    created_at=NOW,
)


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    account = {
        "aliases": ["default"],
        "email": IDENTITY.email,
        "scopes": ["a", "b"],
        "token": Secret(),
        "identity": Secret(),
    }
    tree = {
        "instance": {
            "attributes": {"my-key": "value", "empty": ""},
            "id": 99,
            "machine-type": "projects/4711/machineTypes/n1-standard-4",
            "maintenance-event": "NONE",
            "network-interfaces": {"0": {"ip": "127.0.0.1"}},
            "service-accounts": {"default": account, IDENTITY.email: account},
        },
        "project": {"project-id": "p"},
    }
    server = MetadataServer("127.0.0.1", MetadataTree(tree), TokenIssuer(), IDENTITY)
    yield server
    server.stop()


def get(server: MetadataServer, path: str, **headers: str) -> tuple[str, Any]:
    url = f"http://{server.address}/computeMetadata/v1/{path}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google", **headers})
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.headers["Metadata-Flavor"] == "Google"
        return response.read().decode(), response.headers


def status(server: MetadataServer, path: str, headers: dict[str, str]) -> int:
    """Return the HTTP status of a request that is refused."""
    request = urllib.request.Request(
        f"http://{server.address}/computeMetadata/v1/{path}", headers=headers
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=10)
    with error.value as response:
        return response.code


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("instance/id", "99"),
        ("instance/id?alt=json", "99"),
        ("instance/maintenance-event?alt=json", '"NONE"'),
        ("instance/attributes/", "empty\nmy-key"),
        ("instance/attributes", "empty\nmy-key"),  # by a redirect, as at Google
        ("instance/attributes/my-key", "value"),
        ("instance/attributes/empty", ""),
        ("instance/network-interfaces/0/ip", "127.0.0.1"),
        ("instance/service-accounts/default/", "aliases\nemail\nidentity\nscopes\ntoken"),
        ("instance/service-accounts/default/scopes", "a\nb"),
        ("project/?recursive=true&alt=text", "project-id p"),
        ("", "instance/\nproject/"),
    ],
)
def test_path_returns_its_value_or_directory(server: MetadataServer, path: str, text: str) -> None:
    assert get(server, path)[0] == text


def test_recursive_response_is_camel_case_json_except_for_attributes(
    server: MetadataServer,
) -> None:
    tree = json.loads(get(server, "?recursive=true")[0])
    assert tree["instance"]["machineType"].endswith("n1-standard-4")
    assert tree["instance"]["attributes"] == {"my-key": "value", "empty": ""}
    assert tree["instance"]["networkInterfaces"] == [{"ip": "127.0.0.1"}]
    assert tree["instance"]["serviceAccounts"]["default"] == {
        "aliases": ["default"],
        "email": IDENTITY.email,
        "scopes": ["a", "b"],
    }
    assert json.loads(get(server, "instance/attributes/?recursive=true")[0]) == {
        "my-key": "value",
        "empty": "",
    }


FLAVOR = {"Metadata-Flavor": "Google"}


def test_request_without_the_metadata_header_or_through_a_proxy_is_refused(
    server: MetadataServer,
) -> None:
    assert status(server, "instance/id", headers={}) == 403
    assert status(server, "instance/id", {**FLAVOR, "X-Forwarded-For": "1.2.3.4"}) == 403


def test_unknown_attribute_is_not_found(server: MetadataServer) -> None:
    assert status(server, "instance/attributes/none", FLAVOR) == 404


def test_request_for_an_identity_token_without_its_audience_is_invalid(
    server: MetadataServer,
) -> None:
    assert status(server, "instance/service-accounts/default/identity", FLAVOR) == 400


def test_long_poll_returns_at_once_when_its_value_changes(server: MetadataServer) -> None:
    """The client gives up after ten seconds, long before the poll would end without a change."""
    responses = []

    def poll() -> None:
        path = "instance/attributes/my-key?wait_for_change=true&timeout_sec=600"
        responses.append(get(server, path)[0])

    waiting = threading.Thread(target=poll)
    waiting.start()
    time.sleep(0.3)
    # Another value: no response.
    server.metadata_tree.put("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    time.sleep(0.1)
    assert not responses
    server.metadata_tree.put("instance/attributes", {"my-key": "new"})
    waiting.join()
    assert responses == ["new"]


def test_long_poll_with_an_old_etag_returns_at_once(server: MetadataServer) -> None:
    value, headers = get(server, "instance/maintenance-event?wait_for_change=true&last_etag=NONE")
    assert value == "NONE"
    started = time.monotonic()
    query = f"wait_for_change=true&timeout_sec=1&last_etag={headers['ETag']}"
    # After the timeout, the current value.
    assert get(server, f"instance/maintenance-event?{query}")[0] == "NONE"
    assert time.monotonic() - started >= 0.9
    server.metadata_tree.put("instance/maintenance-event", "X")
    assert get(server, f"instance/maintenance-event?{query}")[0] == "X"


def test_power_off_ends_long_polls(server: MetadataServer) -> None:
    errors = []

    def poll() -> None:
        try:
            get(server, "instance/id?wait_for_change=true")
        except (OSError, urllib.error.URLError) as error:
            errors.append(error)

    waiting = threading.Thread(target=poll)
    waiting.start()
    time.sleep(0.2)
    server.stop()
    waiting.join(5)
    assert len(errors) == 1


def test_identity_token_contains_the_vm_and_can_be_verified(server: MetadataServer) -> None:
    path = "instance/service-accounts/default/identity?audience=trainmaster/p/job"
    full = jwt.decode(
        get(server, f"{path}&format=full")[0],
        certs=server.issuer.certificates(),
        audience="trainmaster/p/job",
    )
    assert full["iss"] == "https://accounts.google.com"
    assert full["exp"] - full["iat"] == 3600
    assert (full["email"], full["email_verified"], full["azp"]) == (
        IDENTITY.email,
        True,
        full["sub"],
    )
    assert full["google"]["compute_engine"] == {
        "project_id": "p",
        "project_number": 4711,
        "zone": "us-central1-a",
        "instance_id": "99",
        "instance_name": "vm",
        "instance_creation_timestamp": int(NOW.timestamp()),
    }
    assert "google" not in jwt.decode(get(server, path)[0], certs=server.issuer.certificates())
    with pytest.raises((ValueError, exceptions.GoogleAuthError)):
        jwt.decode(get(server, path)[0], certs=TokenIssuer().certificates())


PROGRAM = """
import google.auth, google.auth.transport.requests, google.oauth2.id_token
request = google.auth.transport.requests.Request()
credentials, project = google.auth.default()
credentials.refresh(request)
has_token = bool(credentials.token)
print(type(credentials).__module__, project, credentials.service_account_email, has_token)
print(google.oauth2.id_token.fetch_id_token(request, "audience"), flush=True)
"""


def test_google_auth_gets_tokens_that_verify_against_the_emulator(emulator: Emulator) -> None:
    script = f"{sys.executable} - <<'EOF'\n{PROGRAM}\nEOF\necho end; sleep 600"
    emulator.run("vm", script)
    eventually(lambda: "end" in emulator.serial("vm").splitlines(), within_s=20)
    lines = emulator.serial("vm").splitlines()
    account = next(
        line for line in lines if line.startswith("google.auth.compute_engine.credentials ")
    )
    assert account.split()[1:] == [
        "compute-tests",
        emulator.get("vm").service_accounts[0].email,
        "True",
    ]
    token = lines[lines.index(account) + 1]
    request = google.auth.transport.requests.Request()
    claims = id_token.verify_token(
        token, request, "audience", certs_url=f"{emulator.endpoint}/emulator/v1/certs"
    )
    assert claims["email"] == account.split()[2]


def test_vm_without_service_account_has_no_tokens(emulator: Emulator) -> None:
    url = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/service-accounts"
    script = (
        'curl -s -o /dev/null -w "%{http_code}\\n" -H Metadata-Flavor:Google'
        f' "{url}/default/token"; sleep 600'
    )
    emulator.run("vm", script, service_accounts=[])
    eventually(lambda: "404" in emulator.serial("vm").splitlines())
