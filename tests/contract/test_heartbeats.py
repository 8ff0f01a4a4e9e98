"""Guest attributes on Compute Engine's emulator: a VM writes heartbeats and metrics, and
`provision` reads them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.contract.fleets import EmulatorWorld, a_create, metadata, only_vm
from tests.support.stack import eventually
from trainmaster.core.model.job import Job

WRITE = """
url=http://$GCE_METADATA_HOST/computeMetadata/v1/instance/guest-attributes/trainmaster/{key}
curl --silent --fail --request PUT --data '{value}' --header Metadata-Flavor:Google $url \\
  || echo REFUSED
echo WRITTEN
"""
ALLOWED = {"enable-guest-attributes": "TRUE"}


def a_vm(compute: EmulatorWorld, job: Job, value: str, key: str = "heartbeat", **more: str) -> None:
    script = WRITE.format(value=value, key=key)
    compute.fleet.create(
        job, a_create(job, workers=1), {**metadata(), "startup-script": script, **more}
    )
    eventually(
        lambda: "WRITTEN" in compute.fleet.serial_output(only_vm(compute.fleet, job), 0)[0],
        within_s=60,
    )


def test_heartbeat_of_a_vm_is_read(compute: EmulatorWorld, job: Job) -> None:
    a_vm(compute, job, "2026-11-21T03:00:00.123Z", **ALLOWED)
    written = datetime(2026, 11, 21, 3, 0, 0, 123_000, UTC)
    assert compute.fleet.last_heartbeat(only_vm(compute.fleet, job)) == written


@pytest.mark.parametrize(
    ("value", "more"),
    [("not a time", ALLOWED), ("2026-11-21T03:00:00", ALLOWED), ("2026-11-21T03:00:00Z", {})],
    ids=["not a time", "without a time zone", "guest attributes not enabled"],
)
def test_heartbeat_that_is_not_a_time_or_not_permitted_is_unknown(
    compute: EmulatorWorld, job: Job, value: str, more: dict[str, str]
) -> None:
    a_vm(compute, job, value, **more)
    assert compute.fleet.last_heartbeat(only_vm(compute.fleet, job)) is None


def test_heartbeat_of_a_deleted_vm_is_unknown(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(compute.fleet, job)
    compute.fleet.delete(vm)
    eventually(lambda: not compute.fleet.list_vms(job.job_id), within_s=60)
    assert compute.fleet.last_heartbeat(vm) is None


def test_metric_of_a_vm_is_read_apart_from_its_heartbeat(compute: EmulatorWorld, job: Job) -> None:
    text = '{"attempt":1,"measurements":[[100,0.5]]}'
    a_vm(compute, job, text, "metric", **ALLOWED)
    vm = only_vm(compute.fleet, job)
    assert compute.fleet.reported_metric(vm) == text
    assert compute.fleet.last_heartbeat(vm) is None


def test_metric_that_was_not_written_is_unknown(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    assert compute.fleet.reported_metric(only_vm(compute.fleet, job)) is None
