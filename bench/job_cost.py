"""The cost of one job of N replicas from its submission to its end, also in dollars.

    submitted ── VMs created ── all replicas ready ── workers exit 0 ── chief exits 0 ── VMs deleted

Nothing fails, and the replicas' reports arrive together. One thread handles everything in a fixed order, so that the
counts are exact. The sweep is measured on its own (`bench.many_jobs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from bench.agents import agents
from bench.cloud import Emulators, Project
from bench.control_plane import ControlPlane
from bench.figures import Figure, Figures
from bench.jobs import job_spec
from bench.meter import Meter, attach
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.cost import operations

JOB: Final = "job_cost"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one job."""

    reads: float
    writes: float
    deletes: float
    invocations: float
    """Deliveries of all functions together."""

    @property
    def dollars(self) -> float:
        return operations.dollars(self.reads, self.writes, self.deletes, self.invocations)


def run_job(project: Project, size: int) -> Cost:
    """Run one job of `size` replicas from its submission to its end, and return what that cost."""
    meter = Meter()
    attach(project.client, meter)
    with agents(project.name) as senders:
        functions = ControlPlane(project.store, auth=senders.auth(project.store), threads=1, sleep=lambda _: None)
        functions.run([functions.submit(JOB, job_spec(size))])
        vms = functions.vms(JOB)
        functions.run([functions.vm_ready(senders.message(JOB, vm)) for vm in vms])
        exits = [
            (vm.replica_id.task_type, functions.replica_exit(senders.message(JOB, vm, cause="process", exit_status=0)))
            for vm in vms
        ]
        functions.run([exit_ for task_type, exit_ in exits if task_type is TaskType.WORKER])
        functions.run([exit_ for task_type, exit_ in exits if task_type is not TaskType.WORKER])
        cost = Cost(meter.reads, meter.writes, meter.deletes, functions.invocations.total())
        loaded = project.store.load(JOB)
        if loaded is None or loaded.state.job.state is not JobState.SUCCEEDED or functions.vms(JOB):
            raise RuntimeError(f"the job did not succeed, or left VMs: {loaded}")
    return cost


def measure(emulators: Emulators, sizes: Sequence[int]) -> Figures:
    """Return the cost of a job by size."""
    costs: dict[int, Cost] = {}
    for size in sizes:
        with emulators.project() as project:
            costs[size] = run_job(project, size)
    figures: Figures = {}
    for size, cost in costs.items():
        for unit in fields(Cost):
            figures[f"job cost: {unit.name} N={size}"] = Figure(getattr(cost, unit.name), unit.name)
        figures[f"job cost: price N={size}"] = Figure(cost.dollars, "USD")
    return figures
