"""Firestore and Pub/Sub stop for a while and return: clients reconnect, and no event is lost."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="an exit during an outage of a Google service is judged once afterwards",
        quick="`unit/flows/test_outages.py`, `sim/test_outage_ends.py`",
    ),
    pytest.mark.timeout(600),
]

WORKER_0 = ReplicaId(TaskType.WORKER, 0)
OUTAGE_S = float(os.environ.get("TRAINMASTER_TEST_OUTAGE_S", "20"))


@pytest.mark.parametrize(
    "services",
    [("firestore",), ("pubsub",), ("firestore", "pubsub")],
    ids=" and ".join,
)
def test_exit_during_an_outage_is_judged_once_afterwards(
    lab: Lab, services: tuple[str, ...]
) -> None:
    job_id = lab.scripted(workers=2, steps=MANY_STEPS)
    lab.wait_for_programs(job_id)
    with lab.stopped(*services, and_then=signal.SIGCONT):
        lab.faults.kill_program(vm_name(job_id, WORKER_0))
        time.sleep(OUTAGE_S)
    lab.until(lambda: lab.replica(job_id, WORKER_0).incarnation == 2, 90)
    lab.finish(job_id)
    state = lab.wait_for_success(job_id, 120)
    assert [replica.restarts_used for replica in state.replicas] == [0, 1, 0]
    assert state.job.attempt == 1
    keys = [entry.key for entry in lab.store.ledger(job_id)]
    assert len(keys) == len(set(keys))
