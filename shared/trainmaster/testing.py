"""A client whose installation is in memory, for the unit tests of programs that use `trainmaster.Client`.

    from trainmaster.testing import Installation

    installation = Installation()
    job = installation.client.submit({"jobId": "digits_1", "trainingInput": {…}})
    installation.start(job)                    # the VMs are there, and all programs run
    installation.exit(job, "worker-0", 1)      # a program ends; the real rules decide what follows
    installation.exit(job, "chief-0", 0)
    assert installation.client.wait(job).state == "SUCCEEDED"

The API, the flows and the rules are the real ones. There is no network, no thread, and no time but `now`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from trainmaster.api import handler
from trainmaster.api.permissions import EQUIVALENT_PERMISSIONS
from trainmaster.api.request import Request, Service
from trainmaster.client.client import Client
from trainmaster.client.job import Job
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.errors import InvalidJobError, PermanentError
from trainmaster.flows import maintenance, provision, replica_exit, vm_ready
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.memory.access import MemoryAccess
from trainmaster.memory.bus import MemoryBus
from trainmaster.memory.fleet import MemoryFleet
from trainmaster.memory.job_log import MemoryJobLog
from trainmaster.memory.store import MemoryStore
from trainmaster.messaging import agent_messages, google_events, internal_requests, topics
from trainmaster.presentation.log_reader import LogLine
from trainmaster.simulator.world.function_ports import SimAddressBook, run_sequentially

TOKEN: Final = "ya29.a-token-of-the-tests"  # noqa: S105 - valid in memory only
STEP: Final = timedelta(seconds=1)
"""How much later each event of a program is than the one before."""
STARTING: Final = (ReplicaState.WAITING, ReplicaState.RESTARTING, ReplicaState.REPLACING)


class MemoryClient(Client):
    """A Client of an Installation. `wait` does not wait: it raises TimeoutError if the job has not ended."""

    def __init__(self, project: str, api: Any, log: MemoryJobLog) -> None:
        self.project, self._api, self._log, self._poll_s = project, api, log, 0.0

    def wait(self, job: Job | str, timeout_s: float | None = None) -> Job:
        if not (current := self.describe(job)).has_ended:
            raise TimeoutError(f"{current.job_id} is {current.state}: its test has to end its programs with `exit`")
        return super().wait(current, timeout_s)

    def logs(self, job: Job | str, *, follow: bool = False) -> Iterator[LogLine]:  # noqa: ARG002 - of Client
        """Yield the lines of Trainmaster itself: no program runs. `follow` has no effect."""
        for line in self._log.lines(self.describe(job).job_id):
            yield LogLine(line.at.isoformat(), line.key, "service", "", line.severity, line.message, {})


@dataclass
class MemoryApi:
    """The API in this process; the methods are those of `trainmaster.gcp.tools.jobs_api.JobsApi`."""

    service: Service

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, invocation: str = ""
    ) -> Mapping[str, Any]:
        headers = {"authorization": f"Bearer {TOKEN}", "user-agent": f"trainmaster invocation-id/{invocation}"}
        data = b"" if body is None else json.dumps(body).encode()
        response = handler.serve(
            Request(method, f"/v1/projects/{self.service.project}/{path}", {}, headers, data), self.service
        )
        content: dict[str, Any] = json.loads(json.dumps(response.body))
        if response.status < 400:  # noqa: PLR2004 - the first status of an error
            return content
        is_invalid = invocation and content["error"]["status"] == "INVALID_ARGUMENT"
        raise (InvalidJobError if is_invalid else PermanentError)(content["error"]["message"])


@dataclass
class Installation:
    """An installation in memory. Its `client` submits jobs; the methods let their programs start and end.

    A tuning job gets no trials.
    """

    project: str = "my-project"
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The installation's time, which each event of a program advances by a second."""

    def __post_init__(self) -> None:
        self._store, self._bus, self._fleet, log = MemoryStore(), MemoryBus(), MemoryFleet(), MemoryJobLog()
        self._fleet.clock = lambda: self.now
        self._deps = CreationDeps(self._store, self._bus, clock=lambda: self.now, sleep=self._sleep, job_log=log)
        access = MemoryAccess({TOKEN: frozenset(EQUIVALENT_PERMISSIONS.values())})
        service = Service(self.project, self._deps, access, lambda: str(uuid.uuid4()), jobs_per_minute=0)
        self.client = MemoryClient(self.project, MemoryApi(service), log)

    def start(self, job: Job | str) -> None:
        """Create the VMs that the job needs now, and report every replica that is to start or restart as ready."""
        self._provision()
        for _ in range(2):  # the second time: replicas that were held until their peers were ready
            for replica in self._state(job).replicas:
                if replica.state in STARTING:
                    vm_ready.handle(agent_messages.decode_vm_ready(self._message(job, replica.replica_id)), self._deps)
            self._provision()

    def exit(self, job: Job | str, replica: str, status: int) -> None:
        """End the program of a replica, such as `worker-0`, with an exit status.

        Raises PermanentError if the job has no such replica with a VM.
        """
        data = self._message(job, ReplicaId.parse(replica), cause="process", exit_status=status)
        replica_exit.handle(agent_messages.decode_replica_exit(data), self._deps)
        self._provision()

    def preempt(self, job: Job | str, replica: str) -> None:
        """Preempt the VM of a replica. `start` reports its next VM as ready."""
        data = self._message(job, ReplicaId.parse(replica), cause="preemption")
        maintenance.handle(google_events.decode_maintenance(data), self._deps)
        self._provision()

    def _sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _state(self, job: Job | str) -> State:
        job_id = self.client.describe(job).job_id
        if (loaded := self._store.load_attempt(job_id)) is None:
            raise PermanentError(f"{job_id}: has no attempt")
        return loaded.state

    def _provision(self) -> None:
        """Deliver all messages to the function `provision`."""
        machines = FleetDeps(self._fleet, SimAddressBook(), self.project, {}, run_sequentially)
        while message := self._bus.take():
            if message.topic == topics.PROVISION:
                provision.handle(internal_requests.decode_provision(message.data), machines, self._deps)

    def _message(self, job: Job | str, replica_id: ReplicaId, **more: object) -> bytes:
        """Return a message of the agent on the replica's VM."""
        self.now += STEP
        state = self._state(job)
        vms = [vm for vm in self._fleet.list_vms(state.job.job_id) if vm.replica_id == replica_id and vm.directive]
        if not vms:
            raise PermanentError(f"{state.job.job_id}: no VM of {replica_id} runs; call `start` first")
        vm = max(vms, key=lambda vm: vm.vm_generation)
        fields = {
            "version": 1,
            "job_id": state.job.job_id,
            "attempt": vm.directive.attempt if vm.directive else 0,
            "task_type": replica_id.task_type,
            "task_index": replica_id.index,
            "incarnation": vm.directive.incarnation if vm.directive else 0,
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": self.now.isoformat(),
        }
        return json.dumps({**fields, **more}).encode()
