"""Work that grows with the number of jobs: draining the admission queue, and one sweep.

queue    J jobs of one VM wait under a limit of J / 10 VMs; jobs are admitted, run and end until
         none is left
sweep    J running jobs of ten replicas each: one sweep and all that it requests
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bench.agents import Agents, agents
from bench.cloud import Emulators, Project
from bench.control_plane import ControlPlane
from bench.figures import Figure, Figures
from bench.jobs import job_spec
from bench.meter import Meter, attach
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.transitions.change import Change
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore

VCPUS_PER_JOB: Final = 4
"""vCPUs of the machine type in `bench.jobs`."""
SWEEP_REPLICAS: Final = 10
"""Replicas of each job that is swept."""
COPIED: Final = "copied"
"""Id of the job that is copied."""


def measure_queue(emulators: Emulators, sizes: Sequence[int]) -> Iterator[Figures]:
    """Yield the figures of the admission queue, for each number of jobs."""
    for jobs in sizes:
        with emulators.project() as project, agents(project.name) as senders:
            meter = Meter()
            attach(project.client, meter)
            began = time.perf_counter()
            invocations = _drain(project, senders, jobs)
            seconds = time.perf_counter() - began
        yield {
            f"queue: time per job J={jobs}": Figure(seconds / jobs * 1000, "ms"),
            f"queue: reads per job J={jobs}": Figure(meter.reads / jobs, "reads"),
            f"queue: writes per job J={jobs}": Figure(meter.writes / jobs, "writes"),
            f"queue: invocations per job J={jobs}": Figure(invocations / jobs, "invocations"),
        }


def _drain(project: Project, senders: Agents, jobs: int) -> int:
    """Let all jobs wait, run and end. Return the invocations of functions."""
    limits = {"vcpus": VCPUS_PER_JOB * max(1, jobs // 10)}  # a tenth of the jobs may run at a time
    functions = ControlPlane(project.store, auth=senders.auth(project.store), limits=limits)
    left = {f"queue_{number}" for number in range(jobs)}
    functions.run([functions.submit(job_id, job_spec(replicas=1)) for job_id in sorted(left)])
    while left:
        running = [(job_id, vm) for job_id in sorted(left) for vm in functions.vms(job_id)]
        if not running:
            functions.run([functions.sweep()])
            continue
        functions.run([functions.vm_ready(senders.message(job_id, vm)) for job_id, vm in running])
        functions.run(
            [
                functions.replica_exit(senders.message(job_id, vm, cause="process", exit_status=0))
                for job_id, vm in running
            ]
        )
        left -= {job_id for job_id, _ in running if not functions.vms(job_id)}
    return functions.invocations.total()


def measure_sweep(emulators: Emulators, sizes: Sequence[int]) -> Iterator[Figures]:
    """Yield the figures of one sweep, for each number of running jobs."""
    for jobs in sizes:
        with emulators.project() as project:
            functions = running_jobs(project, jobs)
            meter = Meter()
            attach(project.client, meter)
            began = time.perf_counter()
            functions.run([functions.sweep()])
            seconds = time.perf_counter() - began
        yield {
            f"sweep: time J={jobs}": Figure(seconds, "s"),
            f"sweep: reads per job J={jobs}": Figure(meter.reads / jobs, "reads"),
            f"sweep: invocations J={jobs}": Figure(functions.invocations.total(), "invocations"),
        }


def running_jobs(project: Project, jobs: int) -> ControlPlane:
    """Store `jobs` running jobs.

    One is run by the flows in memory; the others are copies under other ids.
    """
    in_memory = ControlPlane(MemoryStore())
    in_memory.run([in_memory.submit(COPIED, job_spec(SWEEP_REPLICAS))])
    with agents(project.name) as senders:
        in_memory.run(
            [in_memory.vm_ready(senders.message(COPIED, vm)) for vm in in_memory.vms(COPIED)]
        )
    loaded = in_memory.store.load_attempt(COPIED)
    if loaded is None or loaded.state.job.state is not JobState.RUNNING:
        raise RuntimeError(f"the job does not run: {loaded}")
    entry = in_memory.store.ledger(COPIED)[0]
    functions = ControlPlane(project.store)
    for number in range(jobs):
        job_id = copy_id(number)
        job = replace(loaded.state.job, job_id=job_id)
        ids = _create_vms(functions.fleet, job)
        replicas = tuple(
            replace(replica, instance_id=ids[replica.replica_id])
            for replica in loaded.state.replicas
        )
        change = Change(job=job, replicas=replicas)
        # Nothing was loaded: the commit creates the documents.
        project.store.commit(
            loaded=None, entry=replace(entry, job_id=job_id, done_at=entry.at), change=change
        )
    return functions


def copy_id(number: int) -> str:
    """Return the id of a copy, numbered from 0."""
    return f"{COPIED}_{number}"


def _create_vms(fleet: MemoryFleet, job: Job) -> dict[ReplicaId, str]:
    """Create the VMs that a running job has. Return their ids."""
    # Each VM is ordered to run the first incarnation, in the way in which its agent reads it.
    directive = Directive(job.attempt, incarnation=1, action=DirectiveAction.RUN)
    written = {"attempt": job.attempt, "incarnation": 1, "action": "run"}
    metadata = {"trainmaster-directive": json.dumps(written)}
    for group in job.plan.groups:
        replica_ids = tuple(ReplicaId(group.task_type, index) for index in range(group.count))
        names = tuple(vm_name(job.job_id, replica_id) for replica_id in replica_ids)
        create = Create(
            group,
            job.zone,
            vm_generation=1,
            directive=directive,
            replica_ids=replica_ids,
            names=names,
            round=0,
        )
        fleet.create(job, create, metadata)
    return {vm.replica_id: vm.instance_id for vm in fleet.list_vms(job.job_id)}
