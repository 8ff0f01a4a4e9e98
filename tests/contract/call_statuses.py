"""Every call of the fleets, made while the emulator fails one request of it with a status, and what
comes of it in a word.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from tests.contract.fleets import a_create, a_fleet, metadata, only_vm
from tests.integration.compute.emulator import PROJECT, Emulator
from tests.integration.tpu import slices
from tests.integration.tpu.slices import Slices
from tests.support.jobs import a_job
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.purchase import OnDemand, Purchase
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.errors import PermanentError, RefusedError, TemporaryError
from trainmaster.gcp.compute_fleet.advice import CapacityAdvisor
from trainmaster.ports import Fleet, NotCreated, Pending, ZonesUnreachableError
from trainmaster_emulators.rest.failing_calls import FAILING_CALLS

STATUSES: Final = (400, 403, 404, 409, 412, 429, 500, 503)
LATER: Final = Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)


class Clouds:
    """Compute Engine and Cloud TPU on one emulator, with what calls need there."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self._near_jobs: list[Job] = []
        self.compute = a_fleet(emulator)
        self.tpu = Slices(emulator).fleet()

    def fail(self, call: Call, status: int) -> None:
        """Let the next such request fail."""
        path = f"/(compute/)?v[12]/{call.path}"
        failing = {"method": call.method, "path": path, "status": status}
        self.emulator.call(FAILING_CALLS, {"calls": [failing]})

    def has_failed(self) -> bool:
        """Return whether the request was made."""
        return not self.emulator.call(FAILING_CALLS)["calls"]

    def job(self) -> Job:
        return a_job(job_id=f"digits_{uuid.uuid4().hex[:8]}")

    def near_job(self) -> Job:
        """Return a job whose VMs are placed close to each other."""
        job = self.job()
        groups = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
        self._near_jobs.append(replace(job, plan=replace(job.plan, groups=groups)))
        return self._near_jobs[-1]

    def clear(self) -> None:
        """Delete the VMs, then the placement policies that they had."""
        self.emulator.delete_all()
        for job in self._near_jobs:
            assert self.compute.release(job)

    def vm(self) -> Vm:
        job = self.job()
        self.compute.create(job, a_create(job, workers=1), metadata())
        return only_vm(self.compute, job)

    def node(self) -> Vm:
        job = slices.a_tpu_job(slices.ONE_HOST)
        self.tpu.create(job, slices.a_create(job), slices.a_metadata())
        (vm,) = self.tpu.list_vms(job.job_id, (slices.ZONE,))
        return vm


def _create(clouds: Clouds, job: Job) -> Callable[[], object]:
    return lambda: clouds.compute.create(job, a_create(job), metadata())


def _create_existing(clouds: Clouds) -> Callable[[], object]:
    """A repeated create, which lists the VMs that have the names."""
    job = clouds.job()
    clouds.compute.create(job, a_create(job, workers=1), metadata())
    return lambda: clouds.compute.create(job, a_create(job, workers=2, round=1), metadata())


def _release(clouds: Clouds) -> Callable[[], object]:
    job = clouds.near_job()
    return lambda: clouds.compute.release(job)


def _advise(clouds: Clouds) -> Callable[[], object]:
    advisor = CapacityAdvisor(PROJECT, endpoint=clouds.emulator.endpoint)
    group = clouds.job().plan.groups[0]
    return lambda: advisor.advise([(slices.ZONE, group)], datetime.now(UTC))


def _create_node(clouds: Clouds) -> Callable[[], object]:
    job = slices.a_tpu_job(slices.ONE_HOST)
    return lambda: clouds.tpu.create(job, slices.a_create(job), slices.a_metadata())


def _queue_node(clouds: Clouds) -> Callable[[], object]:
    purchase = Purchase(OnDemand(), is_queued=True)
    job = replace(
        slices.a_tpu_job(slices.ONE_HOST, purchase=purchase, max_wait_s=3600),
        state=JobState.PREPARING,
        started_at=None,
        created_at=datetime.now(UTC),
    )
    return lambda: clouds.tpu.create(job, slices.a_create(job), slices.a_metadata())


@dataclass(frozen=True)
class Call:
    """One request of Google's APIs that a fleet makes."""

    name: str
    method: str
    path: str
    """Regular expression, after the API's version."""
    prepare: Callable[[Clouds], Callable[[], object]]
    """Returns the call that makes this request."""
    is_read: bool = False
    """Whether one preparation serves for all statuses."""


def _of_vm(act: Callable[[Fleet, Vm], object]) -> Callable[[Clouds], Callable[[], object]]:
    def prepare(clouds: Clouds) -> Callable[[], object]:
        vm = clouds.vm()
        return lambda: act(clouds.compute, vm)

    return prepare


def _of_node(act: Callable[[Fleet, Vm], object]) -> Callable[[Clouds], Callable[[], object]]:
    def prepare(clouds: Clouds) -> Callable[[], object]:
        vm = clouds.node()
        return lambda: act(clouds.tpu, vm)

    return prepare


def _read(fleet_call: Callable[[Clouds], object]) -> Callable[[Clouds], Callable[[], object]]:
    """Return a preparation that needs nothing in the clouds."""
    return lambda clouds: lambda: fleet_call(clouds)


def _insert(clouds: Clouds) -> Callable[[], object]:
    return _create(clouds, clouds.job())


def _insert_near(clouds: Clouds) -> Callable[[], object]:
    return _create(clouds, clouds.near_job())


_DELETE_VM: Final = _of_vm(lambda fleet, vm: fleet.delete(vm))
_DIRECT_VM: Final = _of_vm(lambda fleet, vm: fleet.write_directive(vm, LATER))
_HEARTBEAT: Final = _of_vm(lambda fleet, vm: fleet.last_heartbeat(vm))
_METRIC: Final = _of_vm(lambda fleet, vm: fleet.reported_metric(vm))
_SERIAL: Final = _of_vm(lambda fleet, vm: fleet.serial_output(vm, 0))
_LIST_NODES: Final = _read(lambda clouds: clouds.tpu.list_vms("digits_1", (slices.ZONE,)))
_DELETE_NODE: Final = _of_node(lambda fleet, vm: fleet.delete(vm))
_DIRECT_NODE: Final = _of_node(lambda fleet, vm: fleet.write_directive(vm, LATER))
_HEARTBEAT_OF_SLICE: Final = _of_node(lambda fleet, vm: fleet.last_heartbeat(vm))

_VM: Final = ".*/instances/[^/]+"
_NODE: Final = ".*/nodes/[^/:]+"
_POLICY: Final = ".*/resourcePolicies"
_QUEUED: Final = ".*/queuedResources"
CALLS: Final = (
    Call("list VMs", "GET", ".*/aggregated/instances", _read(lambda it: it.compute.list_vms("j"))),
    Call("list all VMs", "GET", ".*/aggregated/instances", _read(lambda it: it.compute.list_all())),
    Call("insert VMs", "POST", ".*/bulkInsert", _insert),
    Call("wait for an operation", "POST", ".*/operations/.*/wait", _insert),
    Call("list VMs of a zone", "GET", ".*/zones/[^/]+/instances", _create_existing),
    Call("create a placement policy", "POST", _POLICY, _insert_near),
    Call("delete a placement policy", "DELETE", _POLICY + "/.*", _release),
    Call("delete a VM", "DELETE", _VM, _DELETE_VM),
    Call("read a VM", "GET", _VM, _DIRECT_VM),
    Call("write metadata", "POST", _VM + "/setMetadata", _DIRECT_VM),
    Call("write labels", "POST", _VM + "/setLabels", _DIRECT_VM),
    Call("read a heartbeat", "GET", _VM + "/getGuestAttributes", _HEARTBEAT, is_read=True),
    Call("read a trial's metric", "GET", _VM + "/getGuestAttributes", _METRIC, is_read=True),
    Call("read the serial console", "GET", _VM + "/serialPort", _SERIAL, is_read=True),
    Call("ask for advice", "POST", ".*/advice/capacity", _advise),
    Call("list TPU nodes", "GET", ".*/nodes", _LIST_NODES),
    Call("list all TPU nodes", "GET", ".*/nodes", _read(lambda it: it.tpu.list_all())),
    Call("list queued resources", "GET", _QUEUED, _LIST_NODES),
    Call("list a slice's operations", "GET", ".*/operations", _create_node),
    Call("create a slice", "POST", ".*/nodes", _create_node),
    Call("follow a slice's operation", "GET", ".*/operations/[^/]+", _create_node),
    Call("read a slice", "GET", _NODE, _DELETE_NODE),
    Call("delete a slice", "DELETE", _NODE, _DELETE_NODE),
    Call("direct a slice", "PATCH", _NODE, _DIRECT_NODE),
    Call(
        "read a slice's heartbeat",
        "POST",
        _NODE + ":getGuestAttributes",
        _HEARTBEAT_OF_SLICE,
        is_read=True,
    ),
    Call("read a queued resource", "GET", _QUEUED + "/[^/]+", _queue_node),
    Call("queue a slice", "POST", _QUEUED, _queue_node),
)


def outcome(call: Callable[[], object]) -> str:
    """Make the call, and return what came of it in a word."""
    try:
        return _word(call())
    except ZonesUnreachableError as error:
        return "refused" if error.refusal else "unreachable"
    except RefusedError:
        return "refused"
    except TemporaryError:
        return "later"
    except PermanentError:
        return "PERMANENT"


def _word(value: object) -> str:
    match value:
        case NotCreated():
            return value.kind.value
        case Pending():
            return "pending"
        case None:
            return "unknown"
        case False:
            return "undone"
    return "done"
