"""Creation of all nodes of a gang: one CreateNode call for each.

    create each ──► operations ──wait, bounded──► Created | Pending | NotCreated
        └─ 409 ──► a node of this name exists: of this VM generation, of an earlier one, or not ours

If one node cannot be created, the caller deletes the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.api_core import exceptions
from google.cloud import tpu_v2

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.retries import FLEET_READ, FLEET_WRITE
from trainmaster.gcp.tpu_fleet.errors import (
    has_no_tpus,
    is_transient,
    name_exists,
    not_created,
    problem_of,
)
from trainmaster.gcp.tpu_fleet.nodes import vm_of
from trainmaster.gcp.tpu_fleet.operations import Operation, Operations
from trainmaster.gcp.vm_labels import job_key
from trainmaster.ports import Created, CreateOutcome, NotCreated, Pending


class NodeCreation:
    """Creates the nodes of one request, and follows their operations."""

    def __init__(self, client: tpu_v2.TpuClient, operations: Operations) -> None:
        self._client = client
        self._operations = operations

    def create(
        self, parent: str, job: Job, create: Create, node: tpu_v2.Node, deadline: float
    ) -> CreateOutcome:
        """Create all nodes, and wait for them until `deadline` (monotonic clock)."""
        try:
            known = self._operations.creations(parent)
        except exceptions.GoogleAPICallError as error:
            problem = problem_of(error)
            if has_no_tpus(problem):
                return not_created(problem)
            raise
        started = [self._start(parent, job, create, name, node, known) for name in create.names]
        outcomes = [self._outcome(operation, deadline) for operation in started]
        for outcome in outcomes:
            if isinstance(outcome, NotCreated):
                return outcome
        is_pending = any(isinstance(outcome, Pending) for outcome in outcomes)
        return Pending() if is_pending else Created()

    def _start(
        self,
        parent: str,
        job: Job,
        create: Create,
        name: str,
        node: tpu_v2.Node,
        known: Mapping[str, Operation],
    ) -> str | CreateOutcome:
        """Return the name of the operation to follow, or the outcome if it is known at once."""
        creation = known.get(f"{parent}/nodes/{name}")
        has_succeeded = creation is not None and creation.done and not creation.error
        if creation is not None and not has_succeeded:
            return creation.name  # it runs, or its failure is not reported yet
        request = tpu_v2.CreateNodeRequest(parent=parent, node_id=name, node=node)
        try:
            operation: str = self._client.create_node(request, **FLEET_WRITE).operation.name
        except exceptions.GoogleAPICallError as error:
            problem = problem_of(error)
            if name_exists(problem):
                return self._outcome_of_existing(job, create, f"{parent}/nodes/{name}")
            if is_transient(error, problem):
                raise
            return not_created(problem)
        return operation

    def _outcome(self, started: str | CreateOutcome, deadline: float) -> CreateOutcome:
        """Return the outcome of what `_start` returned. Wait for an operation until `deadline`."""
        if not isinstance(started, str):
            return started
        operation = self._operations.follow(started, deadline)
        if not operation.done:
            return Pending()
        if operation.error is None:
            return Created()
        self._operations.delete(operation)
        return not_created(operation.error)

    def _outcome_of_existing(self, job: Job, create: Create, name: str) -> CreateOutcome:
        try:
            node = self._client.get_node(tpu_v2.GetNodeRequest(name=name), **FLEET_READ)
        except exceptions.NotFound:
            return Pending()  # the node that had the name has just been deleted
        if node.labels.get(job_key()) != job_label(job.job_id):
            message = f"a node named {name} exists and does not belong to the job"
            return NotCreated(CapacityErrorKind.DENIED, "ALREADY_EXISTS", message)
        vm = vm_of(node)
        is_ending = vm.status in (VmStatus.STOPPING, VmStatus.STOPPED)
        if is_ending or vm.vm_generation < create.vm_generation:
            return Pending()  # an earlier VM still has the name
        return Created()
