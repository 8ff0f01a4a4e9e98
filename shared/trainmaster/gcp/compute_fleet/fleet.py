"""ComputeFleet: the methods of the Fleet port.

All VMs of one task type are one bulk insert with explicit names. Its request id is a function of
the request, so Compute answers a repeated call with the operation of the first one, finished or
not:

    create ──► bulkInsert ──► operation ──wait, bounded──► Created | Pending | NotCreated
                   └─ 409 ──► VMs of these names exist: of this VM generation, of an earlier one,
                              or not ours

VMs are changed and deleted by their numeric id, never by name: a newer VM of the same name must not
be hit.

Directives are written by `trainmaster.gcp.compute_fleet.directives`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from google.api_core import exceptions
from google.cloud import compute_v1

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm, VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet.directives import Directives
from trainmaster.gcp.compute_fleet.errors import (
    FLEET_CHANGE,
    by_id,
    compute_errors,
    is_transient,
    name_exists,
    not_created,
    problem_of,
    refused_call,
)
from trainmaster.gcp.compute_fleet.listing import Listing
from trainmaster.gcp.compute_fleet.operations import Operations
from trainmaster.gcp.compute_fleet.placement import Placements
from trainmaster.gcp.compute_fleet.properties import resource
from trainmaster.gcp.retries import FLEET_READ
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.gcp.vm_labels import HEARTBEAT, METRIC, job_key, parse_heartbeat
from trainmaster.ports import Created, CreateOutcome, NotCreated, Pending, complete

SETTLE_S: Final = 3.0
"""Longest wait for a delete.

The emulator finishes within this time. On Google Cloud a delete takes half a minute, which is too
long to wait in a function.
"""
REQUEST_NAMESPACE: Final = uuid.UUID("6c1f3c0e-2b0d-5d6b-9a57-7d1f5a1f9f10")
"""Namespace of the UUIDs made from request keys.

Never change it: a repeated insert would become a second one.
"""


class ComputeFleet:
    """The VMs of Compute Engine with a job's label. Thread-safe.

    Adapter of `trainmaster.ports.Fleet`. All methods raise TemporaryError for transient errors, and
    RefusedError for calls that Google refuses, except `create`, which returns refusals.

    `endpoint`: an emulator's; empty: Google's. `wait_s`: how long an insert may be waited for.
    """

    def __init__(self, defaults: VmDefaults, *, endpoint: str = "", wait_s: float = 20.0) -> None:
        project = defaults.project
        self._instances = clients.rest_client(compute_v1.InstancesClient, endpoint)
        self._operations = Operations(project, endpoint)
        self._listing = Listing(project, self._instances)
        self._placements = Placements(project, endpoint, self._operations)
        self._directives = Directives(project, self._instances, self._operations)
        self._by_id = partial(by_id, self._instances, project)
        self._project = project
        self._defaults = defaults
        self._wait_s = wait_s

    def close(self) -> None:
        """Close the connections. A function keeps them open until its instance ends."""
        self._instances.transport.close()
        self._operations.close()
        self._placements.close()

    def list_vms(
        self,
        job_id: str,
        tpu_zones: Sequence[str] = (),  # noqa: ARG002 - the port's
        zones: Sequence[str] = (),
    ) -> tuple[Vm, ...]:
        """Return the job's VMs in every zone, in any state.

        Nodes of Cloud TPU are listed by another fleet.
        """
        with compute_errors(f"list the VMs of {job_id}"):
            listed, unreachable = self._listing.find(_label_filter(job_id), zones)
        if zones:
            unreachable = [zone for zone in unreachable if zone in zones]
        return complete([item.vm for item in listed], unreachable)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """Return all VMs with any job's label, in every zone and any state, with their creation
        times.

        Raises ZonesUnreachableError, which has the VMs of the other zones.
        """
        with compute_errors("list the VMs of all jobs"):
            return complete(*self._listing.find(f"labels.{job_key()}:*", zones))

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs of one bulk insert, all or nothing. If some of the names exist, insert
        only the others, as a request of its own.
        """
        outcome = self._insert(job, create, metadata)
        if not name_exists(outcome):
            return outcome
        with compute_errors(f"list the VMs in {create.zone}"):
            listed = self._listing.in_zone(_label_filter(job.set_id), create.zone)
        existing = {item.vm.name: item.vm for item in listed}
        ours = [existing[name] for name in create.names if name in existing]
        if any(_is_earlier(vm, create) for vm in ours):
            return Pending()  # the earlier VM still has the name
        rest = create.without(existing)
        if not rest.names:
            return Created()
        foreign = self._first_existing(create.zone, rest.names)
        if foreign is not None:
            message = f"a VM named {foreign} exists and does not belong to the job"
            return NotCreated(CapacityErrorKind.DENIED, "alreadyExists", message)
        if not ours:
            return Pending()  # the VM that had the name has just been deleted
        outcome = self._insert(job, rest, metadata)
        return Pending() if name_exists(outcome) else outcome

    def delete(self, vm: Vm) -> bool:
        """Delete the VM by its numeric instance id, so that a newer VM of the same name is never
        deleted. Return whether it is gone.
        """
        with compute_errors(f"delete {vm.name}"):
            try:
                operation = self._by_id(vm, self._instances.delete_unary, **FLEET_CHANGE)
            except exceptions.NotFound:
                return True
            except exceptions.BadRequest as error:
                if problem_of(error).code == "resourceNotReady":
                    return False  # another call is creating or deleting the VM
                raise
            finished = self._operations.in_zone(vm.zone, operation, SETTLE_S)
        return finished is not None and not finished.error.errors

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Write the directive into the VM's metadata, with the metadata fingerprint that `vm` was
        listed with.
        """
        return self._directives.write(vm, directive)

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to this job: replace its metadata in one write, then its labels."""
        return self._directives.hand_over(job, hand_over, metadata)

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return when the VM's agent last wrote a heartbeat. None: unknown."""
        text = self._guest_attribute(vm, HEARTBEAT)
        return None if text is None else parse_heartbeat(text)

    def reported_metric(self, vm: Vm) -> str | None:
        """Return what the agent of a trial's VM last wrote about its metric, unchecked: a program
        on the VM may have written it. None: unknown.
        """
        return self._guest_attribute(vm, METRIC)

    def _guest_attribute(self, vm: Vm, path: str) -> str | None:
        """Return the value. None: it is not written, or Google refuses to say.

        An organisation policy may forbid access to guest attributes (412), and a role may lack it
        (403). No refusal says anything about the VM, so all mean that the value is unknown.
        """
        request = compute_v1.GetGuestAttributesInstanceRequest(
            project=self._project, zone=vm.zone, instance=vm.instance_id, query_path=path
        )
        with compute_errors(f"read {path} of {vm.name}"):
            try:
                attributes = self._instances.get_guest_attributes(request, **FLEET_READ)
            except exceptions.GoogleAPICallError as error:
                if is_transient(error, problem_of(error)):
                    raise
                return None
        return next((item.value for item in attributes.query_value.items), None)

    def release(self, job: Job) -> bool:
        """Delete the other resources of an ended job without VMs, such as placement policies."""
        return self._placements.release(job)

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Return the serial console output from byte `start` on, and where to continue."""
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=self._project, zone=vm.zone, instance=vm.instance_id, start=start
        )
        with compute_errors(f"read the serial output of {vm.name}"):
            try:
                output = self._instances.get_serial_port_output(request, **FLEET_READ)
            except exceptions.NotFound:
                return "", start
        return output.contents, output.next_

    def _insert(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        placement = self._placements.ensure(job, create.group, create.zone)
        if not isinstance(placement, Created):
            return placement
        request = compute_v1.BulkInsertInstanceRequest(
            project=self._project,
            zone=create.zone,
            request_id=str(uuid.uuid5(REQUEST_NAMESPACE, create.request_key(job.job_id))),
            bulk_insert_instance_resource_resource=resource(job, create, self._defaults, metadata),
        )
        with compute_errors(f"insert {create.group.task_type} VMs in {create.zone}"):
            try:
                operation = self._instances.bulk_insert_unary(request, **FLEET_CHANGE)
            except (exceptions.ClientError, exceptions.ServiceUnavailable) as error:
                if is_transient(error, problem_of(error)):
                    raise
                return refused_call(error)
            finished = self._operations.in_zone(create.zone, operation, self._wait_s)
            if finished is None:
                return Pending()
            causes = self._operations.causes(create.zone, finished)
            return not_created(causes[0]) if causes else Created()

    def _first_existing(self, zone: str, names: Iterable[str]) -> str | None:
        """Return the first of these names that a VM has; None if no VM has any.

        Call it with names that no VM with the job's label has.
        """
        for name in names:
            with compute_errors(f"get {name}"):
                try:
                    self._instances.get(
                        project=self._project, zone=zone, instance=name, **FLEET_READ
                    )
                except exceptions.NotFound:
                    continue
                return name
        return None


def _label_filter(job_id: str) -> str:
    """Return the filter of a list that selects the VMs with the job's label."""
    return f"labels.{job_key()}={job_label(job_id)}"


def _is_earlier(vm: Vm, create: Create) -> bool:
    """Return whether the VM must be gone before another one of its name is created: it ends or has
    stopped, or is of an earlier generation.
    """
    is_ending = vm.status in (VmStatus.STOPPING, VmStatus.STOPPED)
    return is_ending or vm.vm_generation < create.vm_generation
