"""A client whose installation is in memory, for the unit tests of programs that use
`trainmaster.Client`.

    from trainmaster_local.testing import Installation

    installation = Installation()
    job = installation.client.submit({"jobId": "digits_1", "trainingInput": {…}})
    installation.start(job)                    # the VMs are there, and all programs run
    installation.exit(job, "worker-0", 1)      # a program ends; the real rules decide what follows
    installation.exit(job, "chief-0", 0)
    assert installation.client.wait(job).state == "SUCCEEDED"

The API, the flows and the rules are the real ones. There is no network, no thread, and no time but
`now`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from trainmaster.api import handler
from trainmaster.api.permissions import EQUIVALENT_PERMISSIONS
from trainmaster.api.request import Request, Service
from trainmaster.client.client import Client
from trainmaster.client.job import Job
from trainmaster.core.model.job import State
from trainmaster.core.model.members import is_ready
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.errors import InvalidJobError, PermanentError
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.gcp.tools.jobs_api import NotFoundError
from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster.presentation.log_reader import LogLine
from trainmaster_local.memory.access import MemoryAccess
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.job_log import MemoryJobLog
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.world.event_sender import event_body
from trainmaster_local.simulator.world.function_ports import SimAddressBook, run_sequentially

TOKEN: Final = "ya29.a-token-of-the-tests"  # noqa: S105 - valid in memory only
"""Access token with all permissions."""
STEP: Final = timedelta(seconds=1)
"""Time between two events of programs."""


class MemoryClient(Client):
    """A Client of an Installation.

    `wait` does not wait: it raises TimeoutError if the job has not ended. `logs` has no lines of
    programs.
    """

    def __init__(self, project: str, api: Any, log: MemoryJobLog) -> None:
        self.project = project
        self._api = api
        self._log = log
        self._poll_s = 0.0
        self._known = {}

    def wait(self, job: Job | str, timeout_s: float | None = None) -> Job:
        """Return the job, which must have ended. Raises as `Client.wait`, and TimeoutError at once
        for a job that has not ended.
        """
        current = self.describe(job)
        if not current.has_ended:
            raise TimeoutError(
                f"{current.job_id} is {current.state}: its test has to end its programs with `exit`"
            )
        return super().wait(current, timeout_s)

    def logs(
        self,
        job: Job | str,
        *,
        follow: bool = False,  # noqa: ARG002
        since: datetime | None = None,  # noqa: ARG002
    ) -> Iterator[LogLine]:
        """Yield the lines of Trainmaster itself: no program runs.

        `follow` and `since` have no effect.
        """
        for line in self._log.lines(self.describe(job).job_id):
            yield LogLine(
                line.at.isoformat(),
                line.key,
                task="service",
                vm="",
                severity=line.severity,
                message=line.message,
                payload={},
            )


@dataclass
class MemoryApi:
    """The API in this process; the methods are those of
    `trainmaster.gcp.tools.jobs_api.JobsApi`.
    """

    service: Service

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        invocation: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Return the response of the API, as if its own user had sent the request.

        `path`: below `/v1/projects/PROJECT/`. `invocation`: id of a call that creates a job. Raises
        InvalidJobError for a job that the API refuses, NotFoundError for an address at which there
        is nothing, and PermanentError for other errors.
        """
        headers = {
            "authorization": f"Bearer {TOKEN}",
            "user-agent": f"trainmaster invocation-id/{invocation}",
        }
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(
            method,
            f"/v1/projects/{self.service.project}/{path}",
            query=dict(query or {}),
            headers=headers,
            body=data,
        )
        response = handler.serve(request, self.service)
        # As JSON, so that a client sees what it would receive.
        content: dict[str, Any] = json.loads(json.dumps(response.body))
        if response.status < 400:  # noqa: PLR2004 - the first status of an error
            return content
        is_invalid = invocation and content["error"]["status"] == "INVALID_ARGUMENT"
        message = content["error"]["message"]
        if response.status == HTTPStatus.NOT_FOUND:
            raise NotFoundError(message)
        raise InvalidJobError(message) if is_invalid else PermanentError(message)


@dataclass
class Installation:
    """An installation in memory.

    Its `client` submits jobs; the methods let their programs start and end.

    A tuning job gets no trials.
    """

    project: str = "my-project"
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The installation's time, which each event of a program advances by a second."""

    def __post_init__(self) -> None:
        self._store = MemoryStore()
        self._bus = MemoryBus(clock=lambda: self.now)
        self._fleet = MemoryFleet(clock=lambda: self.now)
        job_log = MemoryJobLog()
        # Instance id of each VM whose agent runs → how its last program ended by itself; empty: it
        # did not.
        self._ends: dict[str, dict[str, Any]] = {}
        self._deps = CreationDeps(
            self._store, self._bus, clock=lambda: self.now, sleep=self._sleep, job_log=job_log
        )
        fleet_deps = FleetDeps(
            self._fleet,
            SimAddressBook(),
            self.project,
            agent_files={},
            run_all=run_sequentially,
        )
        self._handlers = handlers_by_topic(
            lambda: self._deps, auth_deps=None, fleet_deps=lambda: fleet_deps
        )
        access = MemoryAccess({TOKEN: frozenset(EQUIVALENT_PERMISSIONS.values())})
        service = Service(
            self.project, self._deps, access, lambda: str(uuid.uuid4()), jobs_per_minute=0
        )
        self.client = MemoryClient(self.project, MemoryApi(service), job_log)

    def start(self, job: Job | str) -> None:
        """Create the VMs that the job needs now, and report every replica that is to start or
        restart as ready.
        """
        self._provision()
        # The second time: replicas whose VMs were created when others were ready.
        for _ in range(2):
            state = self._state(job)
            for replica in state.replicas:
                if replica.state is not ReplicaState.COMPLETED and not is_ready(state.job, replica):
                    self._report_ready(state, self._vm(state, replica.replica_id))
            self._provision()

    def exit(self, job: Job | str, replica: str, status: int) -> None:
        """End the program of a replica, such as `worker-0`, with an exit status.

        If the replica runs in rounds, all of its peers stop, too. The next round begins at once if
        all of its VMs have been started; else `start` begins it.

        Raises PermanentError if the job has no such replica with a VM, or its program does not run.
        """
        state = self._state(job)
        vm = self._vm(state, ReplicaId.parse(replica))
        end = {**self._running(state, vm), "cause": "process", "exit_status": status}
        data = self._message(state, vm, **end)
        self._ends[vm.instance_id] = {**end, "at": self.now.isoformat()}
        self._deliver(topics.REPLICA_EXIT, data)
        self._provision()

    def preempt(self, job: Job | str, replica: str) -> None:
        """Preempt the VM of a replica. `start` reports its next VM as ready.

        If the replica runs in rounds, all of its peers stop until then.
        """
        state = self._state(job)
        data = self._message(state, self._vm(state, ReplicaId.parse(replica)), cause="preemption")
        self._deliver(topics.MAINTENANCE, data)
        self._provision()

    def _sleep(self, seconds: float) -> None:
        """Wait.

        Meanwhile agents that run obey `hold`: they end their programs, and report that nothing
        older runs.
        """
        self.now += timedelta(seconds=seconds)
        for job in self._store.live_jobs().jobs:
            loaded = self._store.load_attempt(job.job_id)
            if loaded is None:
                continue
            state = loaded.state
            waiting = {
                replica.replica_id for replica in state.replicas if not is_ready(state.job, replica)
            }
            for vm in self._fleet.list_vms(job.set_id):
                if vm.replica_id in waiting and vm.instance_id in self._ends and _is_held(vm):
                    self._report_ready(state, vm)

    def _state(self, job: Job | str) -> State:
        """Return the job and its replicas. Raises PermanentError if there is no such job."""
        job_id = self.client.describe(job).job_id
        loaded = self._store.load_attempt(job_id)
        if loaded is None:
            raise PermanentError(f"{job_id}: has no attempt")
        return loaded.state

    def _provision(self) -> None:
        """Deliver all messages to the function `provision`."""
        while message := self._bus.take():
            if message.topic == topics.PROVISION:
                self._handlers[topics.PROVISION](message)

    def _deliver(self, topic: str, data: bytes) -> None:
        """Deliver a message of an agent."""
        self._handlers[topic](
            Message(data, attributes={}, message_id=str(uuid.uuid4()), published_at=self.now)
        )

    def _vm(self, state: State, replica_id: ReplicaId) -> Vm:
        """Return the latest VM of a replica. Raises PermanentError if it has none."""
        vms = [
            vm
            for vm in self._fleet.list_vms(state.job.set_id)
            if vm.replica_id == replica_id and vm.directive
        ]
        if not vms:
            raise PermanentError(
                f"{state.job.job_id}: no VM of {replica_id} runs; call `start` first"
            )
        return max(vms, key=lambda vm: vm.vm_generation)

    def _report_ready(self, state: State, vm: Vm) -> None:
        """Report that the VM is ready, and how its last program ended, if it ended by itself."""
        ended = self._ends.setdefault(vm.instance_id, {})
        directive = _directive(vm)
        details: dict[str, object] = {}
        if ended and _key(ended) < (directive.attempt, directive.incarnation):
            details["ended"] = ended
        self._deliver(topics.VM_READY, self._message(state, vm, **details))

    def _running(self, state: State, vm: Vm) -> dict[str, int]:
        """Return attempt and incarnation of the VM's program.

        Under `hold`, in which a round (common start of all peers) is prepared, it is the program of
        the round before, which may fail yet. Raises PermanentError if that program never started,
        or has ended by itself.
        """
        directive = _directive(vm)
        if not _is_held(vm):
            return {"attempt": directive.attempt, "incarnation": directive.incarnation}
        running = {"attempt": directive.attempt, "incarnation": directive.incarnation - 1}
        ended = self._ends.get(vm.instance_id)
        never_started = ended is None or running["incarnation"] == 0
        has_ended = ended and _key(ended) >= _key(running)
        if never_started or has_ended:
            raise PermanentError(
                f"{state.job.job_id}: no program of {vm.replica_id} runs; call `start` first"
            )
        return running

    def _message(self, state: State, vm: Vm, **more: object) -> bytes:
        """Return a message of the agent on the VM about the incarnation in its directive.

        `more` overrides fields.
        """
        self.now += STEP
        directive = _directive(vm)
        key = (directive.attempt, directive.incarnation)
        return json.dumps(
            event_body(vm, state.job.job_id, host=None, key=key, at=self.now, details=more)
        ).encode()


def _directive(vm: Vm) -> Directive:
    """Return what the VM's metadata orders its agent to do. Raises PermanentError if that is
    nothing.
    """
    if vm.directive is None:
        raise PermanentError(f"{vm.name} has no directive")
    return vm.directive


def _is_held(vm: Vm) -> bool:
    """Return whether the agent of the VM waits for its peers: it is to run no program before all of
    them are ready.
    """
    return _directive(vm).action is DirectiveAction.HOLD


def _key(message: Mapping[str, Any]) -> tuple[int, int]:
    """Return attempt (execution of the whole job) and incarnation (execution of the program within
    it).

    `message`: of an agent.
    """
    return message["attempt"], message["incarnation"]
