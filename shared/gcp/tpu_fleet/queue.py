"""A slice that is waited for: a queued resource of its node's name, in the zone that the job seeks it in.

    ask ──► none of the name ──► CreateQueuedResource ──► Pending
            it waits ──► Pending            it FAILED, of this search ──► NotCreated, as often as it is asked
            an earlier machine's, an earlier search's ──► deleted by whoever looks next, or here ──► Pending

Its name does for a request id, as a node's does: a repeated create finds what is there. An id would tell Cloud TPU to
answer for ever with what it did, also after somebody deleted that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from google.api_core import exceptions
from google.cloud import tpu_v2

from shared.core.model.job import Job
from shared.core.reconcile.plan import Create, LabelledVm, Vm, VmStatus, job_label
from shared.core.rules.capacity import provisioning_until
from shared.errors import TemporaryError
from shared.gcp.marks import LABEL_ATTEMPT, LABEL_JOB, LABEL_ROUND
from shared.gcp.tpu_fleet.operations import Operations
from shared.gcp.tpu_fleet.queued import flex_start, identity, is_flexible, node_of, request, vm_of
from shared.gcp.tpu_fleet.refusals import (
    Problem,
    is_taken,
    is_transient,
    problem,
    problem_of,
    refused,
    says_no_such_zone,
)
from shared.gcp.tpu_fleet.rest import CALL_TIMEOUT_S, Rest
from shared.ports import CapacityErrorKind, CreateOutcome, NotCreated, Pending

SETTLE_S: Final = 3.0
"""How long a request is waited for to be taken, or deleted."""
PAGE_SIZE: Final = 200
_UNEXPLAINED: Final = Problem("DEADLINE_EXCEEDED", "the request failed, and Cloud TPU does not say why")

_log = logging.getLogger(__name__)


class Queue:
    def __init__(self, client: tpu_v2.TpuClient, operations: Operations, rest: Rest) -> None:
        self._client, self._operations, self._rest = client, operations, rest

    def listed(self, parent: str, *, must_reach: bool) -> Iterator[LabelledVm]:
        """Requests with a job's label, by the name of their node. `must_reach`: as for nodes. The zone `-` is every
        one. Source: `gcloud compute tpus queued-resources list --zone=-` in public clean-up guides."""
        asked = tpu_v2.ListQueuedResourcesRequest(parent=parent, page_size=PAGE_SIZE)
        for page in self._client.list_queued_resources(asked, timeout=CALL_TIMEOUT_S).pages:
            if page.unreachable and must_reach:
                raise TemporaryError(f"Cloud TPU does not reach {', '.join(page.unreachable)}")
            for queued in page.queued_resources:
                label = node_of(queued).labels.get(LABEL_JOB)
                if label is None:
                    continue
                try:
                    yield LabelledVm(vm_of(queued), label)
                except ValueError:
                    _log.warning("%s carries a job's label but no replica's name: left alone", queued.name)

    def ask(self, parent: str, job: Job, create: Create, node: tpu_v2.Node) -> CreateOutcome:
        (name,) = create.names
        try:
            there = self._get(f"{parent}/queuedResources/{name}")
        except exceptions.GoogleAPICallError as error:
            if says_no_such_zone(found := problem(error)):
                return refused(found)
            raise
        return self._enqueue(parent, job, create, node) if there is None else self._answer(there, job, create)

    def delete(self, path: str, instance_id: str | None = None) -> bool:
        """With its node. With an `instance_id`, only that very one. True: gone."""
        there = self._get(path)
        if there is None or instance_id not in (None, identity(there)):
            return True
        if there.state.state == tpu_v2.QueuedResourceState.State.DELETING:
            return False
        try:
            operation = self._client.delete_queued_resource(
                tpu_v2.DeleteQueuedResourceRequest(name=path, force=True), timeout=CALL_TIMEOUT_S
            ).operation.name
        except exceptions.NotFound:
            return True
        except exceptions.GoogleAPICallError as error:
            if problem(error).code == "FAILED_PRECONDITION":  # its node is just being made
                return False
            raise
        finished = self._operations.followed(operation, time.monotonic() + SETTLE_S)
        return finished.done and finished.error is None

    def _enqueue(self, parent: str, job: Job, create: Create, node: tpu_v2.Node) -> CreateOutcome:
        until = provisioning_until(job)
        if until is not None and until <= datetime.now(UTC):
            return Pending()  # the job is about to be ended for it
        asked = request(parent, job, create, node)
        try:
            operation = self._send(parent, create.names[0], asked, job, create)
        except exceptions.GoogleAPICallError as error:
            found = problem(error)
            if is_taken(found):
                return Pending()
            if is_transient(error, found):
                raise
            return refused(found)
        finished = self._operations.followed(operation, time.monotonic() + SETTLE_S)
        return refused(finished.error) if finished.error else Pending()

    def _send(self, parent: str, name: str, asked: tpu_v2.QueuedResource, job: Job, create: Create) -> str:
        """The name of the operation."""
        if is_flexible(create):
            body = flex_start(asked, job.plan)
            path = f"/v2alpha1/{parent}/queuedResources"
            return str(self._rest.call("POST", path, body, queuedResourceId=name)["name"])
        create_request = tpu_v2.CreateQueuedResourceRequest(
            parent=parent, queued_resource_id=name, queued_resource=asked
        )
        return str(self._client.create_queued_resource(create_request, timeout=CALL_TIMEOUT_S).operation.name)

    def _answer(self, there: tpu_v2.QueuedResource, job: Job, create: Create) -> CreateOutcome:
        labels = node_of(there).labels
        if labels.get(LABEL_JOB) != job_label(job.job_id):
            return NotCreated(CapacityErrorKind.DENIED, "ALREADY_EXISTS", f"{there.name} exists and is not this job's")
        vm: Vm = vm_of(there)
        if vm.status is not VmStatus.REFUSED or vm.vm_generation != create.vm_generation:
            return Pending()
        search = (labels.get(LABEL_ATTEMPT), labels.get(LABEL_ROUND))
        if search != (str(create.directive.attempt), str(create.round)):
            self.delete(there.name, vm.instance_id)
            return Pending()
        error = there.state.failed_data.error
        return refused(problem_of(error) if error.code else _UNEXPLAINED)

    def _get(self, path: str) -> tpu_v2.QueuedResource | None:
        try:
            return self._client.get_queued_resource(tpu_v2.GetQueuedResourceRequest(name=path), timeout=CALL_TIMEOUT_S)
        except exceptions.NotFound:
            return None
