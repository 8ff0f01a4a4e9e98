"""A job that starts without one of its workers (`trainmaster.gang: false`), which gets
its VM late.
"""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType

pytestmark = pytest.mark.e2e

MACHINE = "n1-highmem-4"
"""A machine type that no other test limits or uses."""

WORKERS = {ReplicaId(TaskType.WORKER, index) for index in range(2)}


def running_workers(lab: Lab, job_id: str) -> set[ReplicaId]:
    replicas = lab.state(job_id).replicas
    return {
        replica.replica_id for replica in replicas if replica.state is ReplicaState.RUNNING
    } & WORKERS


# Waits for the next request of a VM without capacity, one minute.
@pytest.mark.heavy(
    fact="a job without a gang starts with the VMs that are available",
    quick="`unit/flows/test_partial_starts.py`",
)
@pytest.mark.timeout(900)
def test_job_runs_with_one_worker_and_the_other_one_joins_when_there_is_capacity(lab: Lab) -> None:
    lab.faults.change(machine_limits={MACHINE: 1})
    try:
        job_id = lab.scripted(
            workers=2,
            steps=MANY_STEPS,
            workerType=MACHINE,
            trainmaster={"gang": False, "independentReplicas": True},
        )
        lab.wait(job_id, "RUNNING", 90)
        lab.until(lambda: len(running_workers(lab, job_id)) == 1, 60)
        lab.until(lambda: lab.state(job_id).job.placement.round >= 1, 60)
        # Compute Engine chooses which one it creates.
        (missing,) = WORKERS - running_workers(lab, job_id)
        assert missing not in {vm.replica_id for vm in lab.fleet.list_vms(job_id)}
        assert lab.replica(job_id, missing).state is ReplicaState.WAITING
    finally:
        lab.faults.clear()
    # The sweep requests the missing VM again after `RETRY_MIN`.
    lab.until(lambda: missing in running_workers(lab, job_id), 200)
    state = lab.state(job_id)
    assert state.job.attempt == 1
    assert [replica.restarts_used for replica in state.replicas] == [0, 0, 0]
    lab.finish(job_id)
    lab.wait_for_success(job_id, 90)
