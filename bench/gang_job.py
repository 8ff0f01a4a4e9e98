"""One job of N replicas, its phases, and what each of them costs.

The benchmarks and tests/integration/cost run the phases, such as `gang.cost_of(gang.start)`, in the
order of a job's life. The functions are the real ones; VMs and agents are models.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar, Final

from bench.agents import Agents
from bench.control_plane import THREADS, ControlPlane, Delivery
from bench.jobs import job_spec
from bench.meter import Meter
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows.user_requests import release_machines
from trainmaster.messaging.push import Message
from trainmaster.ports import CreateOutcome, Store
from trainmaster_local.memory.fleet import MemoryFleet

JOB: Final = "gang"
LOST: Final = ReplicaId(TaskType.WORKER, 0)
"""The replica whose VM `lose_one` preempts."""
TAIL: Final = "x" * 1000
"""The last output of a program that fails."""
PEER_FAILED: Final = {
    "type": "UnavailableError",
    "message": "Socket closed",
    "frame": "task.py:1 in run",
}


@dataclass
class CountedFleet(MemoryFleet):
    """VMs in memory, with a count of the calls."""

    calls: Counter[str] = field(default_factory=Counter)
    on_directive: Callable[[Vm], None] = lambda _: None
    """Called with a VM that was created, or received a directive."""

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        self.calls["listings"] += 1
        return super().list_vms(job_id, tpu_zones, zones)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        self.calls["inserts"] += 1
        existing = {vm.instance_id for vm in super().list_vms(job.job_id)}
        outcome = super().create(job, create, metadata)
        for vm in super().list_vms(job.job_id):
            if vm.instance_id not in existing and vm.name in create.names:
                self.on_directive(vm)
        return outcome

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        is_written = super().write_directive(vm, directive)
        if is_written:
            self.on_directive(replace(vm, directive=directive))
        return is_written


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one phase."""

    seconds: float
    """Time of the control plane, without that of the agents."""
    reads: int
    """Documents that Firestore charges, as the next two."""
    writes: int
    deletes: int
    listings: int
    """Calls to Compute Engine, as the next one."""
    inserts: int
    invocations: int
    """Invocations of functions."""
    failures: int
    """Invocations that failed."""


class Gang:
    """One job of N replicas, on any store."""

    fields: ClassVar[Mapping[str, object]] = {}
    """Fields of the job file beside those of `bench.jobs`."""
    source: ClassVar[str] = ""
    """Source of the submission; empty: an uploaded job file."""

    def __init__(
        self,
        store: Store,
        observer: Store,
        meter: Meter,
        senders: Agents,
        size: int,
        *,
        sleep: Callable[[float], None] = time.sleep,
        threads: int = THREADS,
    ) -> None:
        """Submit the job.

        `meter` counts the calls of `store`; `observer` has the same documents and is not counted.

        `senders` makes the agents' messages. `sleep` waits in the flows. `threads`: how many
        messages the functions handle at a time.
        """
        self.size = size
        self._senders = senders
        self._agents_s = 0.0
        """Time that the agents needed for their messages in this phase, which is not the control
        plane's.
        """
        self._fleet = CountedFleet()
        self.functions = ControlPlane(
            store, senders.auth(store), threads, fleet=self._fleet, sleep=sleep
        )
        self._meter = meter
        self._observer = observer
        self._ends: dict[str, dict[str, object]] = {}
        """Instance id of a VM → the end of its last program."""
        self._ready: set[tuple[str, int, int]] = set()
        """VMs, attempts and incarnations that were reported ready."""
        self.submission = self.cost_of(self._submit)
        """The cost of the submission and of the requests for VMs."""
        # Only now: the agents of new VMs report in a phase of their own, `start`.
        self._fleet.on_directive = self._report_later

    def cost_of(self, phase: Callable[[], None]) -> Cost:
        """Run a phase, which is one of the methods below, and return what it costs."""
        functions = self.functions
        meter = self._meter
        calls = self._fleet.calls
        meter.reset()
        calls.clear()
        functions.invocations.clear()
        functions.failures = 0
        self._agents_s = 0.0
        began = time.perf_counter()
        phase()
        seconds = time.perf_counter() - began - self._agents_s
        return Cost(
            seconds,
            meter.reads,
            meter.writes,
            meter.deletes,
            calls["listings"],
            calls["inserts"],
            functions.invocations.total(),
            functions.failures,
        )

    def _submit(self) -> None:
        spec = {**job_spec(self.size), **self.fields}
        self.functions.run([self.functions.submit(JOB, spec, self.source)])

    def reports(self) -> list[Delivery]:
        """Return the reports of all agents that have something to report."""
        reports = [self._report(vm) for vm in self._vms]
        return [report for report in reports if report is not None]

    def exits(self, **fields: object) -> list[Delivery]:
        """Return the exits of all programs, the chief's first."""
        return [self._exit(vm, **fields) for vm in self._vms]

    def start(self) -> None:
        """Let all agents report that their VMs are ready."""
        self.functions.run(self.reports())
        self._check_running()

    def lose_one(self) -> None:
        """Preempt one VM. The programs of its peers fail, and all run again: one on a new VM."""
        (lost,) = [vm for vm in self._vms if vm.replica_id == LOST]
        peers = [vm for vm in self._vms if vm is not lost]
        failures = [self._exit(vm, exit_status=1, error=PEER_FAILED, tail=TAIL) for vm in peers]
        loss = self.functions.maintenance(self._message(lost, cause="preemption"))
        self._fleet.vanish(lost.name)
        self.functions.run([loss, *failures])
        self._check_running()

    def restart_one(self) -> None:
        """Let the program of the last replica fail. It starts again in its VM."""
        self.functions.run([self._exit(self._vms[-1], exit_status=1, tail=TAIL)])
        self._check_running()

    def end(self) -> None:
        """Let all programs succeed, the chief's last, and check that no VM is left."""
        self._succeed()
        if self._job.state is not JobState.SUCCEEDED or self._vms:
            raise RuntimeError("the job did not succeed, or left VMs")

    def sweep(self) -> None:
        """Sweep, and do all that it requests."""
        self.functions.run([self.functions.sweep()])

    def _succeed(self) -> None:
        for is_worker in (True, False):
            vms = [
                vm for vm in self._vms if (vm.replica_id.task_type is TaskType.WORKER) == is_worker
            ]
            self.functions.run([self._exit(vm, exit_status=0) for vm in vms])

    @property
    def _vms(self) -> tuple[Vm, ...]:
        return MemoryFleet.list_vms(self._fleet, JOB)

    @property
    def _job(self) -> Job:
        loaded = self._observer.load(JOB)
        if loaded is None:
            raise KeyError(JOB)
        return loaded.state.job

    @property
    def _key(self) -> str:
        """The secret in the audience of the agents' tokens; empty: the job keeps no machines."""
        held = self._job.machines if self.fields.get("trainmaster") else None
        return held.key if held else ""

    def _message(self, vm: Vm, **fields: object) -> Message:
        began = time.thread_time()  # several threads make messages
        message = self._senders.message(JOB, vm, self._key, **fields)
        self._agents_s += time.thread_time() - began
        return message

    def _exit(self, vm: Vm, **fields: object) -> Delivery:
        if vm.directive:
            end = {
                "attempt": vm.directive.attempt,
                "incarnation": vm.directive.incarnation,
                "cause": "process",
            }
            self._ends[vm.instance_id] = {**end, "at": datetime.now(UTC).isoformat(), **fields}
        return self.functions.replica_exit(self._message(vm, cause="process", **fields))

    def _report_later(self, vm: Vm) -> None:
        """Let the VM's agent report, as soon as it reads its directive."""
        ready = self._report(vm)
        if ready is not None:
            self.functions.arrivals.put(ready)

    def _report(self, vm: Vm) -> Delivery | None:
        """Return the agent's report that the incarnation in its directive is ready; None if it has
        sent it.
        """
        if vm.directive is None or vm.directive.action is DirectiveAction.STOP:
            return None
        key = (vm.instance_id, vm.directive.attempt, vm.directive.incarnation)
        if key in self._ready:
            return None
        self._ready.add(key)
        details: dict[str, object] = {}
        if vm.instance_id in self._ends:
            details["ended"] = self._ends.pop(vm.instance_id)
        return self.functions.vm_ready(self._message(vm, **details))

    def _check_running(self) -> None:
        """Raise RuntimeError unless every replica runs, and every VM has the directive to run."""
        loaded = self._observer.load_attempt(JOB)
        replicas = loaded.state.replicas if loaded else ()
        are_running = all(replica.state is ReplicaState.RUNNING for replica in replicas)
        are_directed = all(
            vm.directive and vm.directive.action is DirectiveAction.RUN for vm in self._vms
        )
        if not are_running or not are_directed or self._job.round.is_held:
            raise RuntimeError("no replica can continue without a sweep")


class RerunGang(Gang):
    """A job that is rerun as a whole when one of its programs fails."""

    fields: ClassVar[Mapping[str, object]] = {"trainmaster": {"restartJobOnWorkerRestart": True}}

    def rerun(self) -> None:
        """Let the program of the last replica fail, in a job that is rerun then."""
        self.functions.run([self._exit(self._vms[-1], exit_status=1, tail=TAIL)])
        if self._job.attempt == 1:
            raise RuntimeError("the job was not rerun")
        self._check_running()


class KeepingGang(Gang):
    """A job that keeps its machines after its end."""

    fields: ClassVar[Mapping[str, object]] = {"trainmaster": {"keepMachines": "900s"}}
    source = "cli:1/anna"

    def end(self) -> None:
        """Let all programs succeed, the chief's last, and check that all VMs idle."""
        self._succeed()
        idle = [
            vm for vm in self._vms if vm.directive and vm.directive.action is DirectiveAction.STOP
        ]
        if self._job.state is not JobState.SUCCEEDED or len(idle) < self.size:
            raise RuntimeError("the job did not succeed, or left a VM that does not idle")

    def release(self) -> None:
        """Let a user release the machines, and check that no VM is left."""
        if not release_machines(JOB, self.functions.deps, by="anna"):
            raise RuntimeError("the job keeps no machines")
        self.functions.run([])
        if self._vms:
            raise RuntimeError("VMs are left")
