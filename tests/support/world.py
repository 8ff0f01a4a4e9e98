"""A whole control plane in one process: the real flows, the in-memory adapters, and a clock that
tests move.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from typing import Final

import pytest

from tests.support.jobs import START, a_spec
from tests.support.memory_resources import MemoryResources
from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.core.ledger import LedgerEntry, fold
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX, Job
from trainmaster.core.model.members import is_member, is_ready
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import StoppingRule, TrialState, Tuning
from trainmaster.core.model.vm import DirectiveAction, Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reporting.history import History, read_history
from trainmaster.core.transitions.change import Change
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.dispatch import Handler, handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import internal_requests, push, topics
from trainmaster.ports import AdmissionToken, Advisor, Bus, Loaded, Suggester, reached
from trainmaster.ports.metrics import MetricReader
from trainmaster_local.memory.bus import MemoryBus, Message
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore


class FixedAddresses:
    """Addresses that follow from the VM's name and zone."""

    def address(self, name: str, zone: str) -> str:
        return f"{name}.{zone}:2222"

    def channel_address(self, name: str, zone: str) -> str:
        return f"{name}.{zone}:2221"


class Grid:
    """Suggests the points of a finite search space in order, whatever the results are."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        tried = {trial.values for trial in tuning.trials} | {past.values for past in tuning.earlier}
        points = product(
            *(
                [parameter.value_at(index) for index in range(parameter.size or 1)]
                for parameter in tuning.parameters
            )
        )
        return next(point for point in points if point not in tried)

    def find_unpromising(self, tuning: Tuning) -> Mapping[int, str]:
        """Give up the running trials whose latest value is negative, if the tuning job stops trials
        early.
        """
        if tuning.stopping is StoppingRule.NONE:
            return {}
        return {
            trial.number: f"{trial.latest.value:g} is negative"
            for trial in tuning.of_state(TrialState.RUNNING)
            if trial.latest and trial.latest.value < 0
        }


AGENT_TOPICS: Final = {
    "vm-ready": topics.VM_READY,
    "replica-exit": topics.REPLICA_EXIT,
    "maintenance": topics.MAINTENANCE,
}


FIRST: Final = (1, 1)
"""Attempt and number of the first round of a job."""


def run_in_sequence(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks one after another, in place of the threads of a function."""
    for task in tasks:
        task()


@dataclass
class World:
    """The control plane of one job.

    `send` delivers a message of an agent, `deliver` those between the functions.
    """

    job_id: str = "digits_1"
    now: datetime = START
    store: MemoryStore = field(default_factory=MemoryStore)
    bus: MemoryBus = field(default_factory=MemoryBus)
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    limits: dict[str, int] = field(default_factory=dict)
    suggester: Suggester = field(default_factory=Grid)
    allowed: AllowedResources = field(default_factory=AllowedResources)
    objects: MemoryObjects | None = None
    """Where packages are looked up; None: they are not."""
    resources: MemoryResources | None = None
    """Where accounts, images and secrets are looked up; None: they are not."""
    regions: tuple[str, ...] = ()
    prices: PriceList | None = None
    """None: the installation has no price list."""
    notifications: Bus | None = None
    """Where transitions of jobs are published; None: nowhere."""
    metrics: MetricReader | None = None
    """None: agents write no metrics."""
    advisor: Advisor | None = None
    """None: nobody gives advice on capacity."""
    algorithms: str = ""
    """Address of the package of the built-in algorithms."""
    gcsfuse: str = ""
    """Address of gcsfuse; empty: the installation has none."""
    is_independent: bool = False
    """Whether the replicas of jobs without a spec of their own are judged each alone."""
    silent: set[ReplicaId] = field(default_factory=set)
    """Replicas whose agents do not report while their round is held."""
    ends: dict[str, dict[str, object]] = field(default_factory=dict)
    """How the last program of each VM ended by itself, by instance id: the field `ended` of its
    next vm-ready.
    """

    taken_set_id: str = ""
    """The machine set that the job has taken; empty: none."""

    def __post_init__(self) -> None:
        self.fleet.clock = lambda: self.now

    @property
    def deps(self) -> CreationDeps:
        # Several worlds may share a bus: the one that acts publishes at its own time.
        self.bus.clock = lambda: self.now
        objects = self.objects
        resources = self.resources
        return CreationDeps(
            self.store,
            self.bus,
            clock=lambda: self.now,
            sleep=self._sleep,
            limits=self.limits,
            allowed=self.allowed,
            objects=(lambda: objects) if objects else None,
            resources=(lambda: resources) if resources else None,
            regions=self.regions,
            prices=lambda: self.prices or Unknown("there is no price list"),
            notifications=self.notifications,
            advisor=self.advisor,
            algorithms=self.algorithms,
            gcsfuse=self.gcsfuse,
        )

    @property
    def handlers(self) -> dict[str, Handler]:
        return handlers_by_topic(
            lambda: self.deps,
            auth_deps=None,
            fleet_deps=lambda: self.fleet_deps,
            suggester=lambda: self.suggester,
        )

    @property
    def fleet_deps(self) -> FleetDeps:
        files = {"startup-script": "#!"}
        return FleetDeps(
            self.fleet, FixedAddresses(), "my-project", files, run_in_sequence, metrics=self.metrics
        )

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _sleep(self, seconds: float) -> None:
        self.wait(seconds)
        self._report_held()

    def _report_held(self) -> None:
        """Let agents report the held round that they have read, but for the first one of the job:
        tests start its members.
        """
        vms = {vm.name: vm for vm in self.vms}
        for replica in self.replicas if vms and self.store.load(self.job_id) else ():
            vm = vms.get(vm_name(self.set_id, replica.replica_id))
            is_held = (
                vm is not None
                and vm.directive is not None
                and vm.directive.action is DirectiveAction.HOLD
                and is_member(self.job.plan, replica.replica_id)
                and (vm.directive.attempt, vm.directive.incarnation) != FIRST
            )
            if (
                is_held
                and replica.replica_id not in self.silent
                and not is_ready(self.job, replica)
            ):
                self.send("vm-ready", replica.replica_id)

    def submit(
        self,
        spec: dict[str, object] | None = None,
        source: str | None = "gs://b/jobs/digits.yaml#1",
    ) -> None:
        extension: dict[str, object] = (
            {"trainmaster": {"independentReplicas": True}} if self.is_independent else {}
        )
        document = {"jobId": self.job_id, **(spec or {**a_spec(), **extension})}
        attributes = {} if source is None else {"source": source}
        self._handle(topics.SUBMIT, json.dumps(document).encode(), attributes)

    def provision(self) -> None:
        request = internal_requests.ProvisionRequest(self.job_id)
        self._handle(topics.PROVISION, internal_requests.encode_provision(request))

    def sweep(self) -> None:
        self._handle(topics.SWEEP, b"{}")

    def deliver(self) -> None:
        """Deliver the published messages to their functions until there are none.

        Retry a TemporaryError once.
        """
        while message := self.bus.take():
            try:
                self._deliver(message)
            except TemporaryError:
                self.wait(10)
                self._deliver(message)
            if not self.bus.size:
                self._report_held()

    def _deliver(self, message: Message) -> None:
        """Deliver the message. A rejected submission ends here: its function acknowledges it."""
        try:
            self.handlers[message.topic](message)
        except PermanentError:
            if message.topic != topics.SUBMIT:
                raise

    def _handle(self, topic: str, data: bytes, attributes: Mapping[str, str] | None = None) -> None:
        """Deliver a message that was published now."""
        self.handlers[topic](push.Message(data, attributes or {}, "", self.now))

    def send(self, kind: str, replica_id: ReplicaId, **more: object) -> None:
        """Deliver a message of an agent about the incarnation in its VM's latest directive.

        `more` overrides fields.
        """
        self.wait(1)
        fields = {**self.message_fields(replica_id), **more}
        vm_id = self.vm(replica_id).instance_id
        if kind == "replica-exit":
            names = ("attempt", "incarnation", "at", *more)
            self.ends[vm_id] = {name: value for name, value in fields.items() if name in names}
        if kind == "vm-ready" and vm_id in self.ends:
            ended = self.ends[vm_id]
            is_older = (ended["attempt"], ended["incarnation"]) < (
                fields["attempt"],
                fields["incarnation"],
            )
            fields |= {"ended": ended} if is_older else {}
        self._handle(AGENT_TOPICS[kind], json.dumps(fields).encode())

    def send_about(self, vm: Vm, kind: str, **more: object) -> None:
        """Deliver a message of the agent on this VM, which no longer need exist."""
        self._handle(AGENT_TOPICS[kind], json.dumps({**self._fields_of(vm), **more}).encode())

    def message_fields(self, replica_id: ReplicaId) -> dict[str, object]:
        """Return the fields that every message of the replica's agent has."""
        return self._fields_of(self.vm(replica_id))

    def _fields_of(self, vm: Vm) -> dict[str, object]:
        replica_id = vm.replica_id
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

    def report_all_ready(self) -> None:
        """Let all agents report, and the programs start."""
        for replica in self.replicas:
            self.send("vm-ready", replica.replica_id)
        self.deliver()

    def start_running(self) -> None:
        """Submit the job, create its VMs, and report all replicas as ready."""
        self.submit()
        self.deliver()
        self.report_all_ready()

    def exit_program(self, replica_id: ReplicaId, status: int = 1, **more: object) -> None:
        self.send("replica-exit", replica_id, cause="process", exit_status=status, **more)

    def kill(self, replica_id: ReplicaId, signal: int = 9) -> None:
        self.send("replica-exit", replica_id, cause="process", signal=signal)

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

    def find_vm(self, replica_id: ReplicaId) -> Vm | None:
        name = vm_name(self.set_id, replica_id)
        return next((vm for vm in self.vms if vm.name == name), None)

    def vm(self, replica_id: ReplicaId) -> Vm:
        vm = self.find_vm(replica_id)
        assert vm is not None, f"{replica_id} of {self.job_id} has no VM"
        return vm

    @property
    def vms(self) -> tuple[Vm, ...]:
        """The VMs in zones that Google can reach."""
        return reached(lambda: self.fleet.list_vms(self.set_id))[0]

    @property
    def set_id(self) -> str:
        """The id in the names of the job's VMs."""
        return self.taken_set_id or self.job_id

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        return self.store.ledger(self.job_id)

    @property
    def history(self) -> History:
        history = read_history(self.ledger)
        assert history is not None
        return history

    def check(self) -> None:
        """Check the invariants that hold after every step."""
        loaded = self.store.load_attempt(self.job_id)
        assert loaded is not None
        assert fold(self.ledger) == loaded.state, "folding the ledger gives the stored state"
        identities = {(vm.name, vm.vm_generation) for vm in self.vms}
        assert len(identities) == len(self.vms), "two VMs of one replica have one VM generation"
        assert loaded.state.job.budgets.reruns_used <= RERUNS_MAX
        assert all(replica.restarts_used <= RESTARTS_MAX for replica in loaded.state.replicas)


def before_next_commit(
    world: World, patch: pytest.MonkeyPatch, action: Callable[[], object]
) -> None:
    """Run the action right before the next commit, as another function may."""
    commit = world.store.commit

    def commit_second(
        loaded: Loaded | None,
        entry: LedgerEntry,
        change: Change,
        admission_token: AdmissionToken | None = None,
    ) -> None:
        patch.setattr(world.store, "commit", commit)
        action()
        commit(loaded, entry, change, admission_token)

    patch.setattr(world.store, "commit", commit_second)
