"""A whole control plane in one process: the real flows over the adapters in memory, and a clock that tests move."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product

from shared.core.ledger import LedgerEntry, fold
from shared.core.model.job import Job
from shared.core.model.replica import Replica
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import Tuning
from shared.core.model.vm import Vm
from shared.core.model.vm_names import vm_name
from shared.errors import TemporaryError
from shared.flows import maintenance, provision, replica_exit, submit, sweep, tune, vm_ready
from shared.flows.record import Deps
from shared.memory.bus import MemoryBus
from shared.memory.fleet import MemoryFleet
from shared.memory.store import MemoryStore
from shared.messaging import agent_messages, google_events, internal_requests, topics
from shared.ports import Suggester
from tests.support.jobs import START, a_spec


class FixedAddresses:
    def address(self, name: str, zone: str) -> str:
        return f"{name}.{zone}:2222"


class Grid:
    """Tries what has an end in its order, and knows nothing of what came of it."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        tried = {trial.values for trial in tuning.trials} | {past.values for past in tuning.earlier}
        points = product(*([each.nth(nth) for nth in range(each.size or 1)] for each in tuning.parameters))
        return next(point for point in points if point not in tried)


def in_turn(tasks: Sequence[Callable[[], None]]) -> None:
    for task in tasks:
        task()


@dataclass
class World:
    """`deliver` hands every waiting message of ours to its function, as Pub/Sub would; a TemporaryError puts it back
    once. Agents' events are told with `tell`."""

    job_id: str = "digits_1"
    now: datetime = START
    store: MemoryStore = field(default_factory=MemoryStore)
    bus: MemoryBus = field(default_factory=MemoryBus)
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    limits: dict[str, int] = field(default_factory=dict)
    suggester: Suggester = field(default_factory=Grid)

    def __post_init__(self) -> None:
        self.fleet.clock = lambda: self.now

    @property
    def deps(self) -> Deps:
        return Deps(self.store, self.bus, clock=lambda: self.now, sleep=self.wait, limits=self.limits)

    @property
    def machines(self) -> provision.Machines:
        return provision.Machines(self.fleet, FixedAddresses(), "my-project", {"startup-script": "#!"}, in_turn)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def submit(self, spec: dict[str, object] | None = None, source: str | None = "gs://b/jobs/digits.yaml#1") -> None:
        document = {"jobId": self.job_id, **(spec or a_spec())}
        submit.handle(json.dumps(document).encode(), source, self.deps)

    def provision(self) -> None:
        provision.handle(self.job_id, self.machines, self.deps)

    def sweep(self) -> None:
        sweep.handle(self.deps)

    def deliver(self) -> None:
        while message := self.bus.take():
            functions: dict[str, Callable[[bytes], None]] = {
                topics.PROVISION: lambda data: provision.handle(
                    internal_requests.decode_provision(data), self.machines, self.deps
                ),
                topics.TUNE: lambda data: tune.handle(internal_requests.decode_tune(data), self.suggester, self.deps),
            }
            try:
                functions[message.topic](message.data)
            except TemporaryError:
                self.wait(10)
                functions[message.topic](message.data)

    def tell(self, kind: str, replica_id: ReplicaId, **more: object) -> None:
        """An agent's event: of the incarnation and machine that its VM was last told, unless said otherwise."""
        self.wait(1)
        handle, decode = {
            "vm-ready": (vm_ready.handle, agent_messages.decode_vm_ready),
            "replica-exit": (replica_exit.handle, agent_messages.decode_replica_exit),
            "maintenance": (maintenance.handle, google_events.decode_maintenance),
        }[kind]
        handle(decode(json.dumps({**self.subject(replica_id), **more}).encode()), self.deps)  # type: ignore[operator]

    def subject(self, replica_id: ReplicaId) -> dict[str, object]:
        vm = self.vm(replica_id)
        assert vm is not None, f"{replica_id} has no VM"
        assert vm.directive is not None
        return {
            "version": 1,
            "job_id": self.job_id,
            "attempt": vm.directive.attempt,
            "task_type": replica_id.task_type,
            "task_index": replica_id.index,
            "incarnation": vm.directive.incarnation,
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": self.now.isoformat(),
        }

    def everyone_ready(self) -> None:
        for replica in self.replicas:
            self.tell("vm-ready", replica.replica_id)

    def running(self) -> None:
        """A submitted job whose replicas are all up."""
        self.submit()
        self.deliver()
        self.everyone_ready()

    def fail(self, replica_id: ReplicaId, status: int = 1, **more: object) -> None:
        self.tell("replica-exit", replica_id, cause="process", exit_status=status, **more)

    def kill(self, replica_id: ReplicaId, signal: int = 9) -> None:
        self.tell("replica-exit", replica_id, cause="process", signal=signal)

    @property
    def job(self) -> Job:
        loaded = self.store.load(self.job_id)
        assert loaded is not None
        return loaded.state.job

    @property
    def state(self) -> str:
        return self.job.state.value

    @property
    def has_ended(self) -> bool:
        return self.job.state.is_terminal

    @property
    def replicas(self) -> tuple[Replica, ...]:
        loaded = self.store.load_attempt(self.job_id)
        assert loaded is not None
        return loaded.state.replicas

    def replica(self, replica_id: ReplicaId) -> Replica:
        return next(replica for replica in self.replicas if replica.replica_id == replica_id)

    def vm(self, replica_id: ReplicaId) -> Vm | None:
        return next((vm for vm in self.vms if vm.name == vm_name(self.job_id, replica_id)), None)

    @property
    def vms(self) -> tuple[Vm, ...]:
        return self.fleet.list_vms(self.job_id)

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        return self.store.ledger(self.job_id)

    def check(self) -> None:
        """What holds after every step (I3, I5, I9)."""
        loaded = self.store.load_attempt(self.job_id)
        assert loaded is not None
        assert fold(self.ledger) == loaded.state, "the ledger's fold is what is stored"
        assert len({vm.name for vm in self.vms}) == len(self.vms), "one VM per name"
        assert loaded.state.job.budgets.reruns_used <= 3
        assert all(replica.restarts_used <= 5 for replica in loaded.state.replicas)
