"""The port of `provision`: its calls reach the emulator with their bodies, and others are refused as by Google."""

from __future__ import annotations

import json

import pytest
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

from tests.support.refusals import read_refusals
from trainmaster_emulators.compute.account_gate import AccountGate
from trainmaster_emulators.realism.call_access import INFRA

INSTANCE = "/compute/v1/projects/p/zones/us-central1-a/instances/1"


@Request.application
def echo(request: Request) -> Response:
    return Response(request.get_data(), content_type=request.content_type)


@pytest.fixture
def client() -> Client:
    return Client(AccountGate(echo, INFRA, lambda _, name: "database" if name == "2" else "tm-1"))


def test_granted_call_arrives_with_its_body(client: Client) -> None:
    response = client.post(f"{INSTANCE}/setLabels", json={"labels": {"a": "b"}})
    assert (response.status_code, response.json) == (200, {"labels": {"a": "b"}})


def test_calls_of_the_emulators_own_api_need_no_permission(client: Client) -> None:
    assert client.get("/emulator/v1/health").status_code == 200


def test_refusal_is_googles_error_and_is_printed(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    response = client.post(INSTANCE.rpartition("/")[0], json={"tags": {"items": ["a"]}})
    error = json.loads(response.data)["error"]
    assert (response.status_code, error["errors"][0]["reason"]) == (403, "forbidden")
    assert error["message"] == "provision does not have the permission compute.instances.setTags on project"
    assert read_refusals(capsys.readouterr().out) == {error["message"]: 1}


def test_call_for_a_vm_outside_the_condition_is_refused(client: Client) -> None:
    response = client.delete(f"{INSTANCE.rpartition('/')[0]}/2")
    assert response.status_code == 403
    assert "permits VMs named tm-* only, not database" in json.loads(response.data)["error"]["message"]


@pytest.mark.parametrize("path", ["/batch/compute/v1", f"{INSTANCE}/reset"])
def test_call_with_unknown_permissions_is_refused(path: str, client: Client) -> None:
    assert client.post(path).status_code == 403
