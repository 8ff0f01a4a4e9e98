"""Cost of one event and of the provisioning that follows it: the same, however many
other jobs run.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from bench.agents import agents
from bench.cloud import Emulators
from bench.many_jobs import copy_id, running_jobs
from bench.meter import Meter, attach
from trainmaster.core.model.replica_id import TaskType


class Cost(NamedTuple):
    """Documents of Firestore, and invocations of functions."""

    reads: int
    writes: int
    deletes: int
    invocations: int


def cost_of_a_restart(emulators: Emulators, jobs: int) -> Cost:
    """Return the cost of a failed program in one of `jobs` running jobs of ten replicas, until it
    runs again.
    """
    job_id = copy_id(jobs // 2)
    with emulators.project() as project, agents(project.name) as senders:
        functions = running_jobs(project, jobs)
        functions.invocations.clear()
        worker = next(
            vm for vm in functions.vms(job_id) if vm.replica_id.task_type is TaskType.WORKER
        )
        meter = Meter()
        attach(project.client, meter)
        functions.run(
            [
                functions.replica_exit(
                    senders.message(job_id, worker, cause="process", exit_status=1)
                )
            ]
        )
        (directed,) = [vm for vm in functions.vms(job_id) if vm.name == worker.name]
        functions.run([functions.vm_ready(senders.message(job_id, directed))])
        return Cost(meter.reads, meter.writes, meter.deletes, functions.invocations.total())


@pytest.mark.parametrize(
    "jobs",
    [
        40,
        pytest.param(
            1000,
            marks=pytest.mark.heavy(
                fact="an event costs the same beside any number of jobs",
                quick="the same test with 40 jobs",
            ),
        ),
    ],
)
def test_cost_of_an_event_is_the_same_beside_any_number_of_jobs(
    jobs: int, firestore_emulator: str
) -> None:
    emulators = Emulators(firestore_emulator)
    few, many = cost_of_a_restart(emulators, 10), cost_of_a_restart(emulators, jobs)
    print(few)
    assert few == many
    assert min(few) > 0
