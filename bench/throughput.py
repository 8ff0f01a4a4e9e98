"""Events per second of one process with eight threads, each with a job of its own, compared with as many bare events.

The events are ready reports of restarted replicas, which cost the same calls as a bare event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench.agents import Agents, agents
from bench.bare_calls import BareEvents
from bench.cloud import Emulators
from bench.control_plane import ControlPlane
from bench.figures import Figure, Figures
from bench.jobs import job_spec
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.vm import Vm
from trainmaster.messaging.internal_requests import ProvisionRequest

THREADS: Final = 8
RATIO_MIN: Final = 0.7
ROUNDS: Final = 3
"""Rounds of events and of floors, in turn. The fastest round of each counts: other programs disturbed it least."""


def measure(emulators: Emulators, events_per_thread: int) -> Figures:
    """Return the events per second."""
    with emulators.project() as project, agents(project.name) as senders:
        functions = ControlPlane(project.store, auth=senders.auth(project.store), bus=project.bus)
        jobs = [f"throughput_{number}" for number in range(THREADS)]
        functions.run([functions.submit(job, job_spec(ROUNDS * events_per_thread + 1)) for job in jobs])
        functions.run([functions.provision(ProvisionRequest(job)) for job in jobs])
        for job in jobs:
            _restart_workers(functions, senders, job)
        functions.run([functions.provision(ProvisionRequest(job)) for job in jobs])
        rates, floors = [], []
        for turn in range(ROUNDS):
            calls = []
            floor_calls = []
            for job in jobs:
                part = _workers(functions, job)[turn * events_per_thread : (turn + 1) * events_per_thread]
                calls.append([functions.vm_ready(senders.message(job, vm))[1] for vm in part])
                replicas = functions.replicas(job)
                entry = project.store.ledger(job)[-1].key
                bare = BareEvents(project.client, job, replicas[part[0].replica_id].key, entry, f"{job}-{turn}")
                floor_calls.append([bare.run] * len(part))
            rates.append(_events_per_second(calls))
            floors.append(_events_per_second(floor_calls))
    return {f"throughput: {THREADS} threads": Figure(max(rates), "events/s", max(floors), ratio_min=RATIO_MIN)}


def _workers(functions: ControlPlane, job: str) -> list[Vm]:
    return [vm for vm in functions.vms(job) if vm.replica_id.task_type is TaskType.WORKER]


def _restart_workers(functions: ControlPlane, senders: Agents, job: str) -> None:
    """Let the job run, and each worker's program fail once."""
    functions.run([functions.vm_ready(senders.message(job, vm)) for vm in functions.vms(job)])
    functions.run(
        [
            functions.replica_exit(senders.message(job, vm, cause="process", exit_status=1))
            for vm in _workers(functions, job)
        ]
    )


def _events_per_second(calls: Sequence[Sequence[Callable[[], object]]]) -> float:
    """Run each list of calls on a thread of its own."""

    def run_all(own: Sequence[Callable[[], object]]) -> None:
        for call in own:
            call()

    began = time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(run_all, calls))
    return sum(map(len, calls)) / (time.perf_counter() - began)
