"""The calls: one port method each.

Cloud TPU knows no bulk insert, and for nodes no request ids: the name alone makes a repeated call harmless. A gang of
slices is one CreateNode each (`making`), a slice that is waited for a queued resource (`queue`), which makes the node.
Both are listed, the requests first: one that is ACTIVE without a node in the later list has lost it.

Nodes are changed and deleted by name only, so the numeric id is compared first. Nothing can come in between: a name is
free only when its node is gone, and that takes longer than the two calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.protobuf import field_mask_pb2

from shared.core.model.job import Job
from shared.core.reconcile.plan import Create, Directive, LabelledVm, Vm, job_label
from shared.errors import TemporaryError
from shared.gcp.marks import DIRECTIVE_KEY, LABEL_JOB, directive_json
from shared.gcp.tpu_fleet.making import Maker
from shared.gcp.tpu_fleet.nodes import Site, fingerprint, resource, tell_of_trouble, vm_of
from shared.gcp.tpu_fleet.operations import Operations
from shared.gcp.tpu_fleet.queue import Queue
from shared.gcp.tpu_fleet.queued import is_queued
from shared.gcp.tpu_fleet.refusals import problem, says_no_such_zone, trouble
from shared.gcp.tpu_fleet.rest import CALL_TIMEOUT_S, Rest
from shared.ports import CreateOutcome, NotCreated

SETTLE_S: Final = 3.0
"""How long a delete or a directive is waited for; on Google's side a delete takes a minute or more."""
PAGE_SIZE: Final = 200
ANYWHERE: Final = "-"

_log = logging.getLogger(__name__)


class TpuFleet:
    """See `shared.ports.Fleet`. Thread-safe.

    `endpoint` empty: Google's, with the default credentials; else an emulator's, without any. An empty
    `service_account` leaves the choice to Cloud TPU. `wait_s` is the longest a create is waited for.
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
        self._client = tpu_v2.TpuClient(transport="rest", **options)
        rest = Rest(endpoint)
        self._operations = Operations(rest)
        self._maker = Maker(self._client, self._operations)
        self._queue = Queue(self._client, self._operations, rest)
        self._project = project
        self._site = Site(project, service_account, network, subnetwork)
        self._wait_s = wait_s

    def list_vms(self, job_id: str, tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        label = job_label(job_id)
        with trouble(f"list the TPU nodes of {job_id}"):
            found = [each for zone in tpu_zones for each in self._in_zone(zone)]
        return tuple(each.vm for each in found if each.label == label)

    def list_all(self) -> tuple[LabelledVm, ...]:
        """A zone that cannot be reached is left out: what is not seen is not deleted, and looked for again."""
        with trouble("list the TPU nodes of all jobs"):
            return tuple(self._seen(ANYWHERE, must_reach=False))

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Raises TemporaryError where nothing can be known; what was begun is then found at the next call."""
        deadline, parent = time.monotonic() + self._wait_s, self._parent(create.zone)
        with trouble(f"create {create.group.task_type} TPU nodes in {create.zone}"):
            node = resource(job, create, self._site, metadata)
            if is_queued(create):
                return self._queue.ask(parent, job, create, node)
            outcome = self._maker.make(parent, job, create, node, deadline)
        if isinstance(outcome, NotCreated):
            self._take_back(job, create)
        return outcome

    def delete(self, vm: Vm) -> bool:
        with trouble(f"delete {vm.name}"):
            if not vm.instance_id.isdigit():
                return self._queue.delete(f"{self._parent(vm.zone)}/queuedResources/{vm.name}", vm.instance_id)
            node = self._same(vm)
            if node is None:
                return True
            if node.queued_resource and not self._queue.delete(node.queued_resource):
                return False
            return self._delete_node(node)

    def direct(self, vm: Vm, directive: Directive) -> bool:
        """All metadata is sent again, as the mask names the whole of it. Two writers at once are not kept apart: an
        agent obeys no directive older than one it has seen, and the older one, if it stays, is overwritten again."""
        with trouble(f"direct {vm.name}"):
            node = self._same(vm)
            if node is None or fingerprint(node) != vm.fingerprint:
                return False
            said = {**node.metadata, DIRECTIVE_KEY: directive_json(directive)}
            request = tpu_v2.UpdateNodeRequest(
                node=tpu_v2.Node(name=node.name, metadata=said),
                update_mask=field_mask_pb2.FieldMask(paths=["metadata"]),
            )
            try:
                operation = self._client.update_node(request, timeout=CALL_TIMEOUT_S).operation.name
            except exceptions.NotFound:
                return False
            except exceptions.BadRequest as error:
                # "update is not supported while in state PREEMPTED", and in others in which no agent would hear it
                _log.warning("%s takes no directive now: %s", vm.name, problem(error).message)
                return False
            finished = self._operations.followed(operation, time.monotonic() + SETTLE_S)
        return finished.error is None

    def release(self, job: Job) -> bool:  # noqa: ARG002 - the port's signature
        """Nodes are all that a job has here."""
        return True

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:  # noqa: ARG002 - the port's signature
        """Cloud TPU shows no console; what programs print is in Cloud Logging."""
        return "", start

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _in_zone(self, zone: str) -> list[LabelledVm]:
        try:
            return self._seen(zone, must_reach=True)
        except exceptions.GoogleAPICallError as error:
            if says_no_such_zone(problem(error)):
                return []
            raise

    def _seen(self, zone: str, *, must_reach: bool) -> list[LabelledVm]:
        """Nodes, and requests that have none."""
        queued = list(self._queue.listed(self._parent(zone), must_reach=must_reach))
        nodes = list(self._listed(zone, must_reach=must_reach))
        there = {(each.vm.name, each.vm.zone) for each in nodes}
        return nodes + [each for each in queued if (each.vm.name, each.vm.zone) not in there]

    def _listed(self, zone: str, *, must_reach: bool) -> Iterator[LabelledVm]:
        """Nodes with a job's label. `must_reach`: a zone that does not answer is an error, not an empty zone whose
        nodes would be taken for lost."""
        request = tpu_v2.ListNodesRequest(parent=self._parent(zone), page_size=PAGE_SIZE)
        for page in self._client.list_nodes(request, timeout=CALL_TIMEOUT_S).pages:
            if page.unreachable:
                unreachable = f"Cloud TPU does not reach {', '.join(page.unreachable)}"
                if must_reach:
                    raise TemporaryError(unreachable)
                _log.warning("%s: nodes there are not seen", unreachable)
            yield from _labelled(page.nodes)

    def _take_back(self, job: Job, create: Create) -> None:
        """All or nothing: the slices of this create that were made go again. One that cannot be deleted now is
        deleted by whoever looks next, as one in a zone that was given up."""
        for vm in self.list_vms(job.job_id, (create.zone,)):
            if vm.name in create.names and vm.vm_generation == create.vm_generation:
                self.delete(vm)

    def _delete_node(self, node: tpu_v2.Node) -> bool:
        if node.state == tpu_v2.Node.State.DELETING:
            return False
        try:
            operation = self._client.delete_node(
                tpu_v2.DeleteNodeRequest(name=node.name), timeout=CALL_TIMEOUT_S
            ).operation.name
        except exceptions.NotFound:
            return True
        except exceptions.GoogleAPICallError as error:
            if problem(error).code == "FAILED_PRECONDITION":  # being made, or changed by another call
                return False
            raise
        finished = self._operations.followed(operation, time.monotonic() + SETTLE_S)
        return finished.done and finished.error is None

    def _same(self, vm: Vm) -> tpu_v2.Node | None:
        """The very node, if it is still there: not a younger one of its name."""
        node = self._get(f"{self._parent(vm.zone)}/nodes/{vm.name}")
        return node if node is not None and str(node.id) == vm.instance_id else None

    def _get(self, name: str) -> tpu_v2.Node | None:
        try:
            return self._client.get_node(tpu_v2.GetNodeRequest(name=name), timeout=CALL_TIMEOUT_S)
        except exceptions.NotFound:
            return None


def _labelled(nodes: Iterable[tpu_v2.Node]) -> Iterator[LabelledVm]:
    for node in nodes:
        if LABEL_JOB not in node.labels:
            continue
        tell_of_trouble(node)
        try:
            yield LabelledVm(vm_of(node), node.labels[LABEL_JOB])
        except ValueError:
            _log.warning("%s carries a job's label but no replica's name: left alone", node.name)
