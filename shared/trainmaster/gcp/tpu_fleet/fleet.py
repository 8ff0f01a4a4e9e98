"""TpuFleet: the methods of the Fleet port.

Cloud TPU has no bulk insert, and no request ids for nodes: the name alone makes a repeated call
harmless. Slices of a gang are created by one CreateNode call each (`node_creation`). A slice that
is waited for is a queued resource (`queued_resources`), which creates the node. `listing` lists
both.

Nodes are changed and deleted by name only, so the numeric id is compared first. Nothing can happen
in between: a name is free only when its node has been deleted, and that takes longer than the two
calls.

A directive is written to the metadata, for the agents, and to a label, for the listings, which have
no metadata. Both are one call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from google.api_core import exceptions
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2

from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.rest_api import RestApi
from trainmaster.gcp.retries import FLEET_CALL_S, FLEET_READ, FLEET_WRITE
from trainmaster.gcp.tpu_fleet.errors import is_transient, problem_of, tpu_errors
from trainmaster.gcp.tpu_fleet.listing import Listing
from trainmaster.gcp.tpu_fleet.node_creation import NodeCreation
from trainmaster.gcp.tpu_fleet.nodes import fingerprint, resource
from trainmaster.gcp.tpu_fleet.operations import Operations
from trainmaster.gcp.tpu_fleet.queued_resources import QueuedResources
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.gcp.vm_labels import (
    DIRECTIVE_KEY,
    HEARTBEAT,
    LABEL_DIRECTIVE,
    METRIC,
    directive_json,
    directive_label,
    parse_heartbeat,
)
from trainmaster.ports import CreateOutcome, NotCreated, complete

GOOGLE: Final = "https://tpu.googleapis.com"
SETTLE_S: Final = 3.0
"""Longest wait for a delete or a directive. On Google Cloud a delete takes a minute or more."""
FIRST_WORKER: Final = "0"
"""Id of the first host of a slice in guest attributes."""

_log = logging.getLogger(__name__)


class TpuFleet:
    """The nodes of Cloud TPU with a job's label, as VMs. Thread-safe.

    Adapter of `trainmaster.ports.Fleet`. All methods raise TemporaryError for transient errors, and
    RefusedError for calls that Google refuses, except `create`, which returns refusals.

    `endpoint`: an emulator's; empty: Google's. `wait_s`: how long a create may be waited for.
    """

    def __init__(self, defaults: VmDefaults, *, endpoint: str = "", wait_s: float = 20.0) -> None:
        self._client = clients.rest_client(tpu_v2.TpuClient, endpoint, transport="rest")
        api = RestApi(GOOGLE, endpoint, FLEET_CALL_S)
        self._operations = Operations(api)
        self._creation = NodeCreation(self._client, self._operations)
        self._queued_resources = QueuedResources(self._client, self._operations, api)
        self._listing = Listing(defaults.project, self._client, self._queued_resources)
        self._project = defaults.project
        self._defaults = defaults
        self._wait_s = wait_s

    def list_vms(
        self,
        job_id: str,
        tpu_zones: Sequence[str] = (),
        zones: Sequence[str] = (),  # noqa: ARG002 - the port's
    ) -> tuple[Vm, ...]:
        """Return the job's TPU nodes in `tpu_zones`, in any state."""
        label = job_label(job_id)
        vms: list[Vm] = []
        unreachable: list[str] = []
        refusal = ""
        for zone in tpu_zones:
            try:
                with tpu_errors(f"list the TPU nodes of {job_id} in {zone}"):
                    listed = self._listing.in_zone(zone)
            except TemporaryError as error:
                _log.warning("%s", error)
                unreachable.append(zone)
                if isinstance(error, RefusedError):
                    refusal = str(error)
            else:
                vms += [item.vm for item in listed if item.label == label]
        return complete(vms, unreachable, refusal)

    def list_all(
        self,
        zones: Sequence[str] = (),  # noqa: ARG002 - the port's
    ) -> tuple[LabelledVm, ...]:
        """Return all TPU nodes with any job's label, in any state, with their creation times."""
        with tpu_errors("list the TPU nodes of all jobs"):
            return complete(*self._listing.in_all_zones())

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the nodes of a gang, all or none, or request one node through the queue.

        Raises TemporaryError if the outcome is unknown. The next call then finds what has been
        started.
        """
        deadline = time.monotonic() + self._wait_s
        parent = self._parent(create.zone)
        with tpu_errors(f"create {create.group.task_type} TPU nodes in {create.zone}"):
            node = resource(job, create, self._defaults, metadata)
            if create.group.purchase.is_queued:
                return self._queued_resources.create(parent, job, create, node)
            outcome = self._creation.create(parent, job, create, node, deadline)
        if isinstance(outcome, NotCreated):
            self._delete_created(job, create)
        return outcome

    def delete(self, vm: Vm) -> bool:
        """Delete the VM by its numeric instance id, so that a newer VM of the same name is never
        deleted. Return whether it is gone.
        """
        with tpu_errors(f"delete {vm.name}"):
            if not vm.instance_id.isdigit():
                return self._queued_resources.delete(
                    f"{self._parent(vm.zone)}/queuedResources/{vm.name}", vm.instance_id
                )
            node = self._same(vm)
            if node is None:
                return True
            if node.queued_resource and not self._queued_resources.delete(node.queued_resource):
                return False
            return self._delete_node(node)

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Write the directive into the node's metadata and into its label.

        Return False if the node has changed since it was listed, is gone, or accepts no directive
        now. All metadata and all labels are sent again, because the mask names the whole of them.

        Two concurrent writers are not detected: an agent ignores a directive that is older than its
        last one, and the next reconciliation overwrites it.
        """
        with tpu_errors(f"direct {vm.name}"):
            node = self._same(vm)
            if node is None or fingerprint(node) != vm.fingerprint:
                return False
            metadata = {**node.metadata, DIRECTIVE_KEY: directive_json(directive)}
            labels = {**node.labels, LABEL_DIRECTIVE: directive_label(directive)}
            request = tpu_v2.UpdateNodeRequest(
                node=tpu_v2.Node(name=node.name, metadata=metadata, labels=labels),
                update_mask=field_mask_pb2.FieldMask(paths=["metadata", "labels"]),
            )
            try:
                operation = self._client.update_node(request, **FLEET_WRITE).operation.name
            except exceptions.NotFound:
                return False
            except exceptions.BadRequest as error:
                # "update is not supported while in state PREEMPTED", and other states without a
                # running agent
                _log.warning("%s accepts no directive now: %s", vm.name, problem_of(error).message)
                return False
            finished = self._operations.follow(operation, time.monotonic() + SETTLE_S)
        return finished.error is None

    def hand_over(
        self,
        job: Job,  # noqa: ARG002 - the port's signature
        hand_over: HandOver,
        metadata: Mapping[str, str],  # noqa: ARG002 - the port's signature
    ) -> bool:
        """Raise LookupError: job files with TPU slices cannot keep machines."""
        raise LookupError(f"{hand_over.vm.name} is a TPU node, which no other job can take")

    def release(self, job: Job) -> bool:  # noqa: ARG002 - the port's signature
        """Return True: Cloud TPU keeps nothing of a job but its nodes."""
        return True

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return the oldest heartbeat of the hosts that have written one: all hosts of a slice are
        needed.
        """
        heartbeats = [
            parse_heartbeat(text) for text in self._guest_attributes(vm, HEARTBEAT, workers=())
        ]
        known = [heartbeat for heartbeat in heartbeats if heartbeat is not None]
        return min(known, default=None)

    def reported_metric(self, vm: Vm) -> str | None:
        """Return what the first host wrote: it runs the primary of a trial.

        A newer node of that name belongs to the same trial, and the text has its attempt.
        """
        values = self._guest_attributes(vm, METRIC, (FIRST_WORKER,))
        return values[0] if values else None

    def _guest_attributes(self, vm: Vm, path: str, workers: Sequence[str]) -> tuple[str, ...]:
        """Return what these hosts wrote, or all hosts if none are given. The node is read by name.

        Empty where Google refuses to say: by an organisation policy (412) or for lack of a
        permission (403), and for a node that is deleted or in another state (404, 400).
        """
        request = tpu_v2.GetGuestAttributesRequest(
            name=f"{self._parent(vm.zone)}/nodes/{vm.name}", query_path=path, worker_ids=workers
        )
        with tpu_errors(f"read {path} of {vm.name}"):
            try:
                hosts = self._client.get_guest_attributes(request, **FLEET_READ).guest_attributes
            except exceptions.GoogleAPICallError as error:
                if is_transient(error, problem_of(error)):
                    raise
                return ()
        items: list[tpu_v2.GuestAttributesEntry] = []
        for host in hosts:
            items.extend(host.query_value.items)
        return tuple(item.value for item in items if f"{item.namespace}/{item.key}" == path)

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:  # noqa: ARG002 - the port's
        """Return no output: Cloud TPU has no serial console. Cloud Logging has programs' output."""
        return "", start

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _delete_created(self, job: Job, create: Create) -> None:
        """Delete the nodes that this create made, because it is all or nothing.

        A node that cannot be deleted now is deleted by a later reconciliation, as a node in the
        wrong zone.
        """
        for vm in self.list_vms(job.job_id, (create.zone,)):
            if vm.name in create.names and vm.vm_generation == create.vm_generation:
                self.delete(vm)

    def _delete_node(self, node: tpu_v2.Node) -> bool:
        if node.state == tpu_v2.Node.State.DELETING:
            return False
        request = tpu_v2.DeleteNodeRequest(name=node.name)
        return self._operations.finish_deletion(
            lambda: self._client.delete_node(request, **FLEET_WRITE).operation.name, SETTLE_S
        )

    def _same(self, vm: Vm) -> tpu_v2.Node | None:
        """Return the node of this VM. None: it does not exist; a newer one of its name may."""
        node = self._get(f"{self._parent(vm.zone)}/nodes/{vm.name}")
        if node is None or str(node.id) != vm.instance_id:
            return None
        return node

    def _get(self, name: str) -> tpu_v2.Node | None:
        try:
            return self._client.get_node(tpu_v2.GetNodeRequest(name=name), **FLEET_READ)
        except exceptions.NotFound:
            return None
