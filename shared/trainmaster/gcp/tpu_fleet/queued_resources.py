"""Nodes that are waited for: a queued resource with the name of its node, in the zone where the job
requests it.

    create ──► no such name ──► CreateQueuedResource ──► Pending
               it waits ──► Pending
               it FAILED in this placement round ──► NotCreated, however often it is called
               it is of an earlier VM generation or round
                   ──► deleted, here or by a later step ──► Pending

The name makes a repeated call harmless, as for nodes: it finds what exists. With a request id,
Cloud TPU would always return the result of the first call, even after the queued resource was
deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from google.api_core import exceptions
from google.cloud import tpu_v2

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import LabelledVm, Vm, VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.rules.capacity import provisioning_deadline
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.rest_api import RestApi
from trainmaster.gcp.retries import FLEET_READ, FLEET_WRITE, masked
from trainmaster.gcp.tpu_fleet.errors import (
    has_no_tpus,
    is_transient,
    name_exists,
    not_created,
    problem_of,
    problem_of_status,
)
from trainmaster.gcp.tpu_fleet.operations import Operations
from trainmaster.gcp.tpu_fleet.queued_resource_spec import (
    alpha_request,
    identity,
    node_of,
    request,
    vm_of,
)
from trainmaster.gcp.vm_labels import LABEL_ATTEMPT, LABEL_ROUND, job_key, labelled
from trainmaster.ports import CreateOutcome, NotCreated, Pending

SETTLE_S: Final = 3.0
"""Longest wait until a queued resource is accepted or deleted."""
PAGE_SIZE: Final = 200
LISTED_FIELDS: Final = (
    "queuedResources(name,createTime,state,tpu/nodeSpec/node/labels),nextPageToken,unreachable"
)
"""Without the metadata of the requested nodes."""
_UNEXPLAINED: Final = Problem(
    "DEADLINE_EXCEEDED", "the queued resource failed, and Cloud TPU gives no reason"
)


class QueuedResources:
    """The queued resources of one project, whose nodes Cloud TPU creates when it has capacity.

    Methods raise the errors of Google's client, which `TpuFleet` translates.
    """

    def __init__(self, client: tpu_v2.TpuClient, operations: Operations, api: RestApi) -> None:
        self._client = client
        self._operations = operations
        self._api = api

    def list_labelled(self, parent: str, unreachable: set[str]) -> Iterator[LabelledVm]:
        """Yield the queued resources with a job's label, under the name of their node.

        Zones that cannot be reached are added to `unreachable`.

        The zone `-` means all zones. Source: `gcloud compute tpus queued-resources list --zone=-`
        in public guides.
        """
        list_request = tpu_v2.ListQueuedResourcesRequest(parent=parent, page_size=PAGE_SIZE)
        list_all = partial(self._client.list_queued_resources, list_request)
        for page in masked(list_all, LISTED_FIELDS).pages:
            unreachable.update(page.unreachable)
            yield from labelled(page.queued_resources, vm_of, lambda queued: node_of(queued).labels)

    def create(self, parent: str, job: Job, create: Create, node: tpu_v2.Node) -> CreateOutcome:
        """Request the node, unless it was requested before. Return what is known of the request.

        `parent`: project and zone, `projects/P/locations/ZONE`.
        """
        (name,) = create.names
        try:
            existing = self._get(f"{parent}/queuedResources/{name}")
        except exceptions.GoogleAPICallError as error:
            problem = problem_of(error)
            if has_no_tpus(problem):
                return not_created(problem)
            raise
        if existing is None:
            return self._request(parent, job, create, node)
        return self._outcome_of_existing(existing, job, create)

    def delete(self, path: str, instance_id: str | None = None) -> bool:
        """Delete the queued resource with its node; with an `instance_id`, only if it is that one.

        True: it is gone.
        """
        existing = self._get(path)
        if existing is None or instance_id not in (None, identity(existing)):
            return True
        if existing.state.state == tpu_v2.QueuedResourceState.State.DELETING:
            return False
        deletion = tpu_v2.DeleteQueuedResourceRequest(name=path, force=True)
        return self._operations.finish_deletion(
            lambda: self._client.delete_queued_resource(deletion, **FLEET_WRITE).operation.name,
            SETTLE_S,
        )

    def _request(self, parent: str, job: Job, create: Create, node: tpu_v2.Node) -> CreateOutcome:
        """Send the request, and wait for a moment whether Cloud TPU refuses it."""
        until = provisioning_deadline(job)
        if until is not None and until <= datetime.now(UTC):
            return Pending()  # the job is about to end, because its provisioning time is over
        queued = request(parent, job, create, node)
        try:
            operation = self._send(parent, create.names[0], queued, job, create)
        except exceptions.GoogleAPICallError as error:
            problem = problem_of(error)
            if name_exists(problem):
                return Pending()
            if is_transient(error, problem):
                raise
            return not_created(problem)
        finished = self._operations.follow(operation, time.monotonic() + SETTLE_S)
        return not_created(finished.error) if finished.error else Pending()

    def _send(
        self, parent: str, name: str, queued: tpu_v2.QueuedResource, job: Job, create: Create
    ) -> str:
        """Return the name of the operation.

        The client library has the API v2. Some price classes are only in v2alpha1.
        """
        body = alpha_request(queued, create.price, job.plan)
        if body is not None:
            path = f"/v2alpha1/{parent}/queuedResources"
            answer = self._api.call("POST", path, body, queuedResourceId=name)
            return str(answer["name"])
        creation = tpu_v2.CreateQueuedResourceRequest(
            parent=parent, queued_resource_id=name, queued_resource=queued
        )
        return str(self._client.create_queued_resource(creation, **FLEET_WRITE).operation.name)

    def _outcome_of_existing(
        self, existing: tpu_v2.QueuedResource, job: Job, create: Create
    ) -> CreateOutcome:
        """Return the outcome for the queued resource that has the name. Delete a failed one of an
        earlier placement round.
        """
        labels = node_of(existing).labels
        if labels.get(job_key()) != job_label(job.job_id):
            message = (
                f"a queued resource named {existing.name} exists and does not belong to the job"
            )
            return NotCreated(CapacityErrorKind.DENIED, "ALREADY_EXISTS", message)
        vm: Vm = vm_of(existing)
        if vm.status is not VmStatus.REFUSED or vm.vm_generation != create.vm_generation:
            return Pending()
        requested_in = (labels.get(LABEL_ATTEMPT), labels.get(LABEL_ROUND))
        if requested_in != (str(create.directive.attempt), str(create.round)):
            self.delete(existing.name, vm.instance_id)
            return Pending()
        error = existing.state.failed_data.error
        return not_created(problem_of_status(error) if error.code else _UNEXPLAINED)

    def _get(self, path: str) -> tpu_v2.QueuedResource | None:
        try:
            return self._client.get_queued_resource(
                tpu_v2.GetQueuedResourceRequest(name=path), **FLEET_READ
            )
        except exceptions.NotFound:
            return None
