"""What the fleet reads of the guest attributes that the hosts of a slice write."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import requests

from tests.integration.tpu.slices import (
    FOUR_HOSTS,
    ONE_HOST,
    Slices,
    a_create,
    a_metadata,
    a_tpu_job,
    create_slice,
    listed,
)
from tests.support.stack import eventually
from trainmaster.core.model.vm import Vm
from trainmaster.errors import TemporaryError
from trainmaster.gcp.retries import FLEET_READ
from trainmaster.gcp.tpu_fleet import TpuFleet
from trainmaster.gcp.tpu_fleet import fleet as adapter
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Created
from trainmaster_local.memory.fleet import MemoryFleet

WRITE_METRIC = """
url=http://$GCE_METADATA_HOST/computeMetadata/v1/instance flavor=Metadata-Flavor:Google
worker=$(curl -s -H $flavor $url/attributes/agent-worker-number)
curl -sf -X PUT --data "worker $worker" -H $flavor $url/guest-attributes/trainmaster/metric \\
  || echo refused
echo written; sleep 600
"""


@pytest.mark.parametrize(("allowed", "text"), [("TRUE", "worker 0"), ("FALSE", None)])
def test_metric_is_what_the_first_host_wrote(
    slices: Slices, allowed: str, text: str | None
) -> None:
    fleet, job = slices.fleet(), a_tpu_job(FOUR_HOSTS)
    metadata = {**a_metadata(WRITE_METRIC), "enable-guest-attributes": allowed}
    assert fleet.create(job, a_create(job), metadata) == Created()
    (vm,) = listed(fleet, job)
    eventually(lambda: all("written" in log for log in slices.logs(vm.name)), 30)
    assert fleet.reported_metric(vm) == text


WRITE_HEARTBEAT = """
url=http://$GCE_METADATA_HOST/computeMetadata/v1/instance flavor=Metadata-Flavor:Google
worker=$(curl -s -H $flavor $url/attributes/agent-worker-number)
time="2026-11-21T03:0$((9 - worker)):00Z"
attribute=$url/guest-attributes/trainmaster/heartbeat
test $worker = 3 || curl -sf -X PUT --data "$time" -H $flavor $attribute
echo written; sleep 600
"""
"""Host 0 writes 03:09, host 1 03:08 and host 2 03:07. Host 3 writes no heartbeat."""


def test_heartbeat_of_a_slice_is_the_oldest_that_its_hosts_have_written(
    slices: Slices,
) -> None:
    fleet, job = slices.fleet(), a_tpu_job(FOUR_HOSTS)
    metadata = {**a_metadata(WRITE_HEARTBEAT), "enable-guest-attributes": "TRUE"}
    assert fleet.create(job, a_create(job), metadata) == Created()
    (vm,) = listed(fleet, job)
    eventually(lambda: sum("written" in log for log in slices.logs(vm.name)) == 4, 30)
    assert fleet.last_heartbeat(vm) == datetime(2026, 11, 21, 3, 7, tzinfo=UTC)


def test_metric_of_a_deleted_slice_is_unknown(slices: Slices) -> None:
    fleet = slices.fleet()
    vm = create_slice(fleet, a_tpu_job(ONE_HOST))
    assert fleet.delete(vm)
    assert fleet.reported_metric(vm) is None


def a_response(status: str, code: int) -> requests.Response:
    response = requests.Response()
    response.status_code = code
    response.request = requests.Request("POST", "http://127.0.0.1:9").prepare()
    response._content = json.dumps(
        {"error": {"status": status, "message": "no", "code": code}}
    ).encode()
    return response


def a_fleet_whose_api_answers(
    response: requests.Response, monkeypatch: pytest.MonkeyPatch
) -> tuple[TpuFleet, Vm]:
    """Return a fleet, and a VM to read from. No call is repeated."""
    monkeypatch.setattr(adapter, "FLEET_READ", {**FLEET_READ, "retry": None})
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: response)
    memory, job = MemoryFleet(), a_tpu_job()
    return TpuFleet(VmDefaults("p"), endpoint="http://127.0.0.1:9"), create_slice(memory, job)


@pytest.mark.parametrize(
    ("status", "code"),
    [("PERMISSION_DENIED", 403), ("NOT_FOUND", 404), ("FAILED_PRECONDITION", 400)],
)
def test_metric_that_may_not_be_read_is_unknown(
    monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    fleet, vm = a_fleet_whose_api_answers(a_response(status, code), monkeypatch)
    assert fleet.reported_metric(vm) is None


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("ABORTED", 409, TemporaryError),
        ("RESOURCE_EXHAUSTED", 429, TemporaryError),
        ("UNAVAILABLE", 503, TemporaryError),
    ],
)
def test_failed_read_of_a_metric_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: str, code: int, expected: type[Exception]
) -> None:
    fleet, vm = a_fleet_whose_api_answers(a_response(status, code), monkeypatch)
    with pytest.raises(expected, match=f"read trainmaster/metric of {vm.name}"):
        fleet.reported_metric(vm)
