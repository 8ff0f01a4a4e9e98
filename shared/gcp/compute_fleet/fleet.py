"""The calls: one port method each.

One role of a gang is one bulk insert with explicit names. Its request id is a function of what is asked, so a repeated
call is answered with the first call's operation, done or not:

    create ──► bulkInsert ──► operation ──wait, bounded──► Created | Pending | NotCreated
                   └─ 409 ──► the names are there: ours, another machine's, or a stranger's?

VMs are changed and deleted by their numeric id, never by name: a younger VM of the same name is not meant.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from shared.core.model.job import Job
from shared.core.reconcile.plan import Create, Directive, LabelledVm, Vm, VmStatus, job_label, replica_id_from_vm_name
from shared.gcp.compute_fleet.operations import CALL_TIMEOUT_S, Operations
from shared.gcp.compute_fleet.placement import Placements
from shared.gcp.compute_fleet.properties import Site, items, resource
from shared.gcp.compute_fleet.refusals import is_taken, is_transient, problem, refused, trouble
from shared.gcp.marks import DIRECTIVE_KEY, LABEL_JOB, LABEL_VM_GENERATION, directive_json, parse_directive
from shared.ports import CapacityErrorKind, Created, CreateOutcome, NotCreated, Pending

log = logging.getLogger(__name__)

SETTLE_S: Final = 3.0
"""How long a delete or a directive is waited for. Locally that is enough to see it done; on Google's side a delete
takes half a minute, which nobody should wait for in a function."""
REQUEST_NAMESPACE: Final = uuid.UUID("6c1f3c0e-2b0d-5d6b-9a57-7d1f5a1f9f10")
"""Of the UUIDs made from request keys. Never change it: a repeated insert would become a second one."""

_STATUSES: Final = {
    VmStatus.RUNNING: {"RUNNING"},
    VmStatus.STOPPING: {"STOPPING", "PENDING_STOP", "SUSPENDING", "DEPROVISIONING"},
    VmStatus.STOPPED: {"TERMINATED", "STOPPED", "SUSPENDED"},
}


class ComputeFleet:
    """See `shared.ports.Fleet`. Thread-safe.

    `endpoint` empty: Google's, with the default credentials; else an emulator's, without any. An empty
    `service_account` gives the VMs none. `network` and `subnetwork` as partial or full URLs. `wait_s` is the longest an
    insert is waited for.
    """

    def __init__(
        self,
        project: str,
        *,
        endpoint: str = "",
        service_account: str = "",
        network: str = "global/networks/default",
        subnetwork: str = "",
        wait_s: float = 20.0,
    ) -> None:
        options: dict[str, Any] = {}
        if endpoint:
            options["credentials"] = AnonymousCredentials()
            options["client_options"] = ClientOptions(api_endpoint=endpoint.rstrip("/"))
        self._instances = compute_v1.InstancesClient(**options)
        self._operations = Operations(project, options)
        self._placements = Placements(project, options, self._operations)
        self._project = project
        self._site = Site(service_account, network, subnetwork)
        self._wait_s = wait_s

    def list_vms(self, job_id: str, tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:  # noqa: ARG002 - the port's
        found = self._list(f"labels.{LABEL_JOB}={job_label(job_id)}", f"list the VMs of {job_id}")
        return tuple(each.vm for each in found)

    def list_all(self) -> tuple[LabelledVm, ...]:
        return tuple(self._list(f"labels.{LABEL_JOB}:*", "list the VMs of all jobs"))

    def _list(self, matching: str, doing: str) -> list[LabelledVm]:
        """No partial success is asked for: a zone that cannot be reached is an error, not an empty zone whose VMs would
        be taken for lost."""
        request = compute_v1.AggregatedListInstancesRequest(project=self._project, filter=matching)
        with trouble(doing):
            pages = self._instances.aggregated_list(request, timeout=CALL_TIMEOUT_S)
            return [vm for _, scope in pages for vm in _labelled(scope.instances)]

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Where some of the names exist, only the others are inserted, as a request of its own."""
        outcome = self._insert(job, create, metadata)
        if not is_taken(outcome):
            return outcome
        existing = {vm.name: vm for vm in self.list_vms(job.job_id) if vm.zone == create.zone}
        there = [existing[name] for name in create.names if name in existing]
        if any(
            vm.vm_generation < create.vm_generation or vm.status in (VmStatus.STOPPING, VmStatus.STOPPED)
            for vm in there
        ):
            return Pending()  # a predecessor still has the name
        missing = [
            (replica_id, name)
            for replica_id, name in zip(create.replica_ids, create.names, strict=True)
            if name not in existing
        ]
        if not missing:
            return Created()
        if stranger := self._stranger(create.zone, [name for _, name in missing]):
            return NotCreated(CapacityErrorKind.DENIED, "alreadyExists", f"{stranger} exists and is not this job's")
        if not there:
            return Pending()  # whoever had the name is gone by now
        rest = replace(
            create, replica_ids=tuple(replica_id for replica_id, _ in missing), names=tuple(name for _, name in missing)
        )
        outcome = self._insert(job, rest, metadata)
        return Pending() if is_taken(outcome) else outcome

    def delete(self, vm: Vm) -> bool:
        with trouble(f"delete {vm.name}"):
            try:
                operation = self._instances.delete_unary(
                    project=self._project, zone=vm.zone, instance=vm.instance_id, timeout=CALL_TIMEOUT_S
                )
            except exceptions.NotFound:
                return True
            except exceptions.BadRequest as error:
                if problem(error).code == "resourceNotReady":  # being made or deleted by another call
                    return False
                raise
            finished = self._operations.in_zone(vm.zone, operation, SETTLE_S)
        return finished is not None and not finished.error.errors

    def direct(self, vm: Vm, directive: Directive) -> bool:
        """Setting metadata replaces all of it, so what is there now is sent again, under the fingerprint that says it
        is still what was listed."""
        with trouble(f"direct {vm.name}"):
            try:
                instance = self._instances.get(
                    project=self._project, zone=vm.zone, instance=vm.instance_id, timeout=CALL_TIMEOUT_S
                )
                if instance.metadata.fingerprint != vm.fingerprint:
                    return False
                said = {item.key: item.value for item in instance.metadata.items}
                said[DIRECTIVE_KEY] = directive_json(directive)
                operation = self._instances.set_metadata_unary(
                    project=self._project,
                    zone=vm.zone,
                    instance=vm.instance_id,
                    metadata_resource=compute_v1.Metadata(fingerprint=vm.fingerprint, items=items(said)),
                    timeout=CALL_TIMEOUT_S,
                )
            except (exceptions.NotFound, exceptions.PreconditionFailed):
                return False
            finished = self._operations.in_zone(vm.zone, operation, SETTLE_S)
        return finished is None or not finished.error.errors

    def release(self, job: Job) -> bool:
        return self._placements.release(job)

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=self._project, zone=vm.zone, instance=vm.instance_id, start=start
        )
        with trouble(f"read the serial output of {vm.name}"):
            try:
                output = self._instances.get_serial_port_output(request, timeout=CALL_TIMEOUT_S)
            except exceptions.NotFound:
                return "", start
        return output.contents, output.next_

    def _insert(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        placed = self._placements.ensure(job, create.group, create.zone)
        if not isinstance(placed, Created):
            return placed
        request = compute_v1.BulkInsertInstanceRequest(
            project=self._project,
            zone=create.zone,
            request_id=str(uuid.uuid5(REQUEST_NAMESPACE, create.request_key(job.job_id))),
            bulk_insert_instance_resource_resource=resource(job, create, self._site, metadata),
        )
        with trouble(f"insert {create.group.task_type} VMs in {create.zone}"):
            try:
                operation = self._instances.bulk_insert_unary(request, timeout=CALL_TIMEOUT_S)
            except (exceptions.ClientError, exceptions.ServiceUnavailable) as error:
                found = problem(error)
                if is_transient(error, found):
                    raise
                return refused(found, otherwise=CapacityErrorKind.DENIED)
            finished = self._operations.in_zone(create.zone, operation, self._wait_s)
            if finished is None:
                return Pending()
            causes = self._operations.causes(create.zone, finished)
            return refused(causes[0]) if causes else Created()

    def _stranger(self, zone: str, names: Iterable[str]) -> str | None:
        """The first of these names that somebody has: none of them carries our labels."""
        for name in names:
            with trouble(f"get {name}"):
                try:
                    self._instances.get(project=self._project, zone=zone, instance=name, timeout=CALL_TIMEOUT_S)
                except exceptions.NotFound:
                    continue
                return name
        return None


def _labelled(instances: Iterable[compute_v1.Instance]) -> Iterator[LabelledVm]:
    for instance in instances:
        try:
            yield LabelledVm(_vm(instance), instance.labels[LABEL_JOB])
        except ValueError:
            log.warning("%s carries a job's label but no replica's name: left alone", instance.name)


def _vm(instance: compute_v1.Instance) -> Vm:
    metadata = {item.key: item.value for item in instance.metadata.items}
    return Vm(
        name=instance.name,
        zone=instance.zone.rpartition("/")[2],
        instance_id=str(instance.id),
        status=next((each for each, words in _STATUSES.items() if instance.status in words), VmStatus.CREATING),
        replica_id=replica_id_from_vm_name(instance.name),
        vm_generation=int(instance.labels.get(LABEL_VM_GENERATION, "0")),
        directive=parse_directive(metadata.get(DIRECTIVE_KEY)),
        fingerprint=instance.metadata.fingerprint,
        created_at=_moment(instance.creation_timestamp),
        started_at=_moment(instance.last_start_timestamp),
    )


def _moment(text: str) -> datetime | None:
    """RFC 3339, as Compute writes it; empty for what has not happened."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
