"""Deletions and reads, and how errors of calls and operations are told apart."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import requests
from google.cloud import compute_v1

from tests.contract.compute_fleet.answers import a_response
from tests.contract.fleets import (
    NOWHERE,
    OTHER_ZONE,
    RUN,
    EmulatorWorld,
    MemoryWorld,
    a_create,
    a_fleet,
    delete_and_wait,
    metadata,
    only_vm,
)
from tests.integration.compute.emulator import ZONE, Emulator
from tests.support.stack import eventually
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, DirectiveAction, VmStatus
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp.addresses import DnsAddresses, EmulatorAddresses
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.compute_fleet import fleet as adapter
from trainmaster.gcp.retries import FLEET_READ
from trainmaster.gcp.vm_defaults import VmDefaults


def test_change_that_the_rate_limit_refuses_is_sent_again(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(compute.fleet, job)
    compute.emulator.faults(rate_limited=1)
    compute.fleet.delete(vm)
    delete_and_wait(compute.fleet, vm)
    assert compute.fleet.list_vms(job.job_id) == ()


def test_slow_delete_returns_false_until_the_vm_is_gone(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.gcp.compute_fleet.fleet.SETTLE_S", 0.1)
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(compute.fleet, job)
    compute.emulator.faults(slow_s=0.5)
    assert not compute.fleet.delete(vm)
    assert only_vm(compute.fleet, job).status is VmStatus.STOPPING
    delete_and_wait(compute.fleet, vm)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (403, "forbidden", None),
        (404, "notFound", None),
        (403, "rateLimitExceeded", TemporaryError),
        (503, "backendError", TemporaryError),
        (400, "invalid", None),
        (412, "conditionNotMet", None),
    ],
)
def test_metric_that_may_not_be_read_is_unknown_and_other_failures_are_errors(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    reason: str,
    expected: type[Exception] | None,
) -> None:
    memory = MemoryWorld()
    memory.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(memory.fleet, job)
    monkeypatch.setattr(adapter, "FLEET_READ", {**FLEET_READ, "retry": None})
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(status, reason))
    fleet = ComputeFleet(VmDefaults("p"), endpoint=NOWHERE)
    if expected is None:
        assert fleet.reported_metric(vm) is None
        return
    with pytest.raises(expected, match=f"read trainmaster/metric of {vm.name}: {reason}"):
        fleet.reported_metric(vm)


@pytest.mark.parametrize(
    ("reason", "expected"), [("resourceNotReady", False), ("invalid", RefusedError)]
)
def test_refused_deletion_of_a_vm_waits_while_it_is_not_ready_and_is_otherwise_an_error(
    job: Job, monkeypatch: pytest.MonkeyPatch, reason: str, expected: type[Exception] | bool
) -> None:
    memory = MemoryWorld()
    memory.fleet.create(job, a_create(job, workers=1), metadata())
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(400, reason))
    fleet = ComputeFleet(VmDefaults("p"), endpoint=NOWHERE)
    if isinstance(expected, bool):
        assert fleet.delete(only_vm(memory.fleet, job)) is expected
        return
    with pytest.raises(expected, match=reason):
        fleet.delete(only_vm(memory.fleet, job))


def test_change_whose_operation_fails_has_not_happened(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(compute.fleet, job)
    error = compute_v1.Error(errors=[compute_v1.Errors(code="INTERNAL_ERROR", message="no")])
    failed = compute_v1.Operation(status=compute_v1.Operation.Status.DONE, error=error)
    monkeypatch.setattr(compute.fleet._operations, "in_zone", lambda *_: failed)
    assert not compute.fleet.write_directive(
        vm, Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    )
    assert not compute.fleet.delete(vm)


def test_serial_output_continues_from_the_given_offset(compute: EmulatorWorld, job: Job) -> None:
    script = {"startup-script": "echo one; sleep 0.5; echo two; sleep 600"}
    compute.fleet.create(job, a_create(job, workers=1), {**metadata(), **script})
    vm = only_vm(compute.fleet, job)
    eventually(lambda: "one" in compute.fleet.serial_output(vm, 0)[0])
    _, end = compute.fleet.serial_output(vm, 0)
    eventually(lambda: compute.fleet.serial_output(vm, end)[0] == "two\n")
    delete_and_wait(compute.fleet, vm)
    assert compute.fleet.serial_output(vm, end) == ("", end), "a VM that is gone writes no more"


def test_list_that_the_rate_limit_refuses_is_a_temporary_error(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.emulator.faults(rate_limited=1)
    with pytest.raises(TemporaryError, match="rateLimitExceeded"):
        compute.fleet.list_vms(job.job_id)


def test_list_without_a_connection_is_a_temporary_error(compute: EmulatorWorld, job: Job) -> None:
    with pytest.raises(TemporaryError):
        a_fleet(compute.emulator, endpoint=NOWHERE).list_vms(job.job_id)


def test_list_of_a_wrong_project_is_refused(compute: EmulatorWorld, job: Job) -> None:
    with pytest.raises(RefusedError, match="projects/other"):
        a_fleet(compute.emulator, VmDefaults("other")).list_vms(job.job_id)


def test_addresses_are_known_before_the_vm_exists(emulator: Emulator) -> None:
    assert DnsAddresses("p").address("vm", ZONE) == f"vm.{ZONE}.c.p.internal:2222"
    assert (
        DnsAddresses("example.com:p").address("vm", ZONE)
        == f"vm.{ZONE}.c.p.example.com.internal:2222"
    )
    book = EmulatorAddresses(emulator.endpoint)
    assert (
        book.address("vm", ZONE)
        == book.address("vm", OTHER_ZONE)
        == EmulatorAddresses(emulator.endpoint).address("vm", ZONE)
    )
    with pytest.raises(TemporaryError):
        EmulatorAddresses(NOWHERE).address("vm", ZONE)


def test_call_whose_id_google_refuses_is_made_with_the_name_of_the_same_vm(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a condition on names were checked with the id that a call contains."""
    compute.fleet.create(job, a_create(job, workers=2), metadata())
    vm, other = compute.fleet.list_vms(job.job_id)
    send = requests.Session.request

    def refuse_ids(
        session: requests.Session, method: str, url: str, **options: Any
    ) -> requests.Response:
        return (
            a_response(403, "forbidden")
            if re.search(r"/instances/\d+", url)
            else send(session, method, url, **options)
        )

    monkeypatch.setattr(requests.Session, "request", refuse_ids)
    assert compute.fleet.write_directive(vm, replace(RUN, incarnation=2))
    assert compute.fleet.last_heartbeat(vm) is None
    recreated = replace(vm, instance_id="1")
    assert compute.fleet.delete(recreated), "a VM of this name with another id is another VM"
    assert len(compute.fleet.list_vms(job.job_id)) == 2
    delete_and_wait(compute.fleet, vm)
    assert [left.name for left in compute.fleet.list_vms(job.job_id)] == [other.name]
