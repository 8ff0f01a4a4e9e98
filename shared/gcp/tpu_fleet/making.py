"""A gang of slices at once or not at all: one CreateNode each; when one is refused, the caller takes the others back.

begin each ──► operations ──wait, bounded──► Created | Pending | NotCreated
    └─ 409 ──► the name is there: ours, another machine's, or a stranger's?
"""

from __future__ import annotations

from collections.abc import Mapping

from google.api_core import exceptions
from google.cloud import tpu_v2

from shared.core.model.job import Job
from shared.core.reconcile.plan import Create, VmStatus, job_label
from shared.gcp.marks import LABEL_JOB
from shared.gcp.tpu_fleet.nodes import vm_of
from shared.gcp.tpu_fleet.operations import Operation, Operations
from shared.gcp.tpu_fleet.refusals import is_taken, is_transient, problem, refused, says_no_such_zone
from shared.gcp.tpu_fleet.rest import CALL_TIMEOUT_S
from shared.ports import CapacityErrorKind, Created, CreateOutcome, NotCreated, Pending


class Maker:
    def __init__(self, client: tpu_v2.TpuClient, operations: Operations) -> None:
        self._client, self._operations = client, operations

    def make(self, parent: str, job: Job, create: Create, node: tpu_v2.Node, deadline: float) -> CreateOutcome:
        """`deadline`: until the monotonic clock reads this, it is waited for."""
        try:
            known = self._operations.makings(parent)
        except exceptions.GoogleAPICallError as error:
            if says_no_such_zone(found := problem(error)):
                return refused(found)
            raise
        begun = [self._begin(parent, job, create, name, node, known) for name in create.names]
        outcomes = [self._outcome(each, deadline) for each in begun]
        if error_kind := next((each for each in outcomes if isinstance(each, NotCreated)), None):
            return error_kind
        return Pending() if any(isinstance(each, Pending) for each in outcomes) else Created()

    def _begin(
        self, parent: str, job: Job, create: Create, name: str, node: tpu_v2.Node, known: Mapping[str, Operation]
    ) -> str | CreateOutcome:
        """The name of the operation to follow, or what is known at once."""
        making = known.get(f"{parent}/nodes/{name}")
        if making is not None and (not making.done or making.error):
            return making.name
        request = tpu_v2.CreateNodeRequest(parent=parent, node_id=name, node=node)
        try:
            begun: str = self._client.create_node(request, timeout=CALL_TIMEOUT_S).operation.name
        except exceptions.GoogleAPICallError as error:
            found = problem(error)
            if is_taken(found):
                return self._there(job, create, f"{parent}/nodes/{name}")
            if is_transient(error, found):
                raise
            return refused(found)
        return begun

    def _outcome(self, begun: str | CreateOutcome, deadline: float) -> CreateOutcome:
        if not isinstance(begun, str):
            return begun
        operation = self._operations.followed(begun, deadline)
        if not operation.done:
            return Pending()
        if operation.error is None:
            return Created()
        self._operations.forget(operation)
        return refused(operation.error)

    def _there(self, job: Job, create: Create, name: str) -> CreateOutcome:
        """Whose node has the name."""
        try:
            node = self._client.get_node(tpu_v2.GetNodeRequest(name=name), timeout=CALL_TIMEOUT_S)
        except exceptions.NotFound:
            return Pending()  # whoever had the name is gone by now
        if node.labels.get(LABEL_JOB) != job_label(job.job_id):
            return NotCreated(CapacityErrorKind.DENIED, "ALREADY_EXISTS", f"{name} exists and is not this job's")
        vm = vm_of(node)
        if vm.vm_generation < create.vm_generation or vm.status in (VmStatus.STOPPING, VmStatus.STOPPED):
            return Pending()  # a predecessor still has the name
        return Created()
