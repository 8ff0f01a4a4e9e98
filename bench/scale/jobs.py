"""An installation with its jobs: agents and programs that follow a script, and nothing fails.

`bench.scale` submits jobs and reads the counts. Functions, flows and rules are the real ones; time,
Google Cloud and VMs are models (`virtual_time`, `google`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from bench.jobs import job_spec
from bench.scale.google import BOOT_S, Compute, Firestore, Functions
from bench.scale.virtual_time import World
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.vm import DirectiveAction, Vm
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.gcp.addresses import DnsAddresses
from trainmaster.messaging import topics
from trainmaster.suggesters.optuna_suggester import OptunaSuggester
from trainmaster.wiring.fleet import THREADS
from trainmaster_local.simulator.world.event_sender import REPEAT_S, event_body

SWEEP_S = 60.0
"""Interval of Cloud Scheduler's calls of the sweep."""
CHIEF_LATER_S = 3.0
"""Time for which the chief's program runs after the last worker's, as it writes the model."""
JOBS_MAX = 1_000_000
"""More than any scenario has, trials included."""
READ_S = (0.2, 1.0)
"""Shortest and longest time until an agent has acted on its directive."""


@dataclass
class Installation:
    """All functions, services and VMs."""

    regions: list[str]
    run_s: float
    """Time for which each program runs."""
    ends_at_s: float | None = None
    """Virtual time at which all programs end; None: each ends after `run_s`."""
    limits: dict[str, int] = field(default_factory=dict)
    world: World = field(default_factory=World)
    started_s: dict[str, float] = field(default_factory=dict)
    """Job id → virtual time at which its first program began."""

    def __post_init__(self) -> None:
        self.firestore = Firestore(self.world)
        self.compute = Compute(self.world)
        self.compute.on_vm = self._direct
        self.functions = Functions(self.world)
        suggester = OptunaSuggester()
        addresses = DnsAddresses("my-project")
        deps = CreationDeps(
            self.firestore.port,
            self.functions,
            clock=self.world.now,
            sleep=self.world.pause,
            limits=dict(self.limits),
        )
        fleet_deps = FleetDeps(
            self.compute,
            addresses,
            "my-project",
            agent_files={},
            run_all=partial(self.world.run_all, THREADS),
        )
        self.functions.handlers = handlers_by_topic(
            lambda: deps,
            auth_deps=None,
            fleet_deps=lambda: fleet_deps,
            suggester=lambda: suggester,
        )
        self.world.after(SWEEP_S, self._sweep)

    def submit(self, number: int, replicas: int, **fields: object) -> None:
        """Submit a job. `fields` are added to its training input."""
        spec = json.loads(json.dumps(job_spec(replicas)))
        spec["trainingInput"]["region"] = self.regions[number % len(self.regions)]
        spec["trainingInput"] |= fields
        data = json.dumps({"jobId": f"job_{number}", **spec}).encode()
        source = {"source": f"gs://bucket/jobs/{number}.json#1"}
        self.functions.publish(topics.SUBMIT, data, source)

    def ended(self) -> int:
        """Return how many submitted jobs have ended, and have no VM left."""
        jobs = self.firestore.memory.recent_jobs(JOBS_MAX)
        return sum(self._is_gone(job) for job in jobs if job.trial_of is None)

    def _is_gone(self, job: Job) -> bool:
        if job.state.is_terminal and job.state is not JobState.SUCCEEDED:
            raise RuntimeError(f"{job.job_id}: {job.state} {job.error_message}")
        return job.state.is_terminal and not self.compute.has_vms(job.set_id)

    def reset(self) -> None:
        """Count from now on."""
        self.firestore.reset()
        self.compute.reset()
        self.functions.loads.clear()
        for slots in self.functions.slots.values():
            slots.waiting_max = 0

    def _sweep(self) -> None:
        self.functions.publish(topics.SWEEP, b"{}", attributes={})
        self.world.after(SWEEP_S, self._sweep)

    def _direct(self, job_id: str, vm: Vm) -> None:
        """Let the VM's agent follow its directive: under `hold` it only reports vm-ready."""
        if vm.directive is None:
            return
        if vm.directive.action is DirectiveAction.HOLD:
            self._later(BOOT_S, partial(self._report, topics.VM_READY, job_id, vm, {}))
        elif vm.directive.action is DirectiveAction.RUN:
            self._later(READ_S, partial(self._run, job_id, vm))

    def _later(self, span_s: tuple[float, float], action: Callable[[], None]) -> None:
        self.world.after(random.uniform(*span_s), action)  # noqa: S311 - no secret

    def _run(self, job_id: str, vm: Vm) -> None:
        """Run the VM's program, and report its success."""
        self.started_s.setdefault(job_id, self.world.now_s)
        end = {"cause": "process", "exit_status": 0, "metric": {"value": 0.5, "step": 1}}
        left_s = self.run_s if self.ends_at_s is None else self.ends_at_s - self.world.now_s
        runs_s = max(0.0, left_s) + random.random()  # noqa: S311 - no secret
        if vm.replica_id.task_type is TaskType.CHIEF:
            runs_s += CHIEF_LATER_S
        exits = partial(self._report, topics.REPLICA_EXIT, job_id, vm, end)
        self.world.after(runs_s, exits)

    def _report(self, topic: str, job_id: str, vm: Vm, details: dict[str, object]) -> None:
        """Publish an event of the VM's agent, and repeat it until a directive or the VM's end
        answers it.
        """
        current = self.compute.current(vm)
        if current is None or current.directive != vm.directive or vm.directive is None:
            return
        key = vm.directive.attempt, vm.directive.incarnation
        body = event_body(vm, job_id, host=None, key=key, at=self.world.now(), details=details)
        self.functions.publish(topic, json.dumps(body).encode(), attributes={})
        self._later(REPEAT_S, partial(self._report, topic, job_id, vm, details))
