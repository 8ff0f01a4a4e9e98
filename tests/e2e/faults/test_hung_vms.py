"""A VM that hangs with its agent, while Compute Engine shows it as running, is replaced."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from tests.support.load import is_quick
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica_id import ReplicaId, TaskType

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="a VM that hangs is replaced",
        quick="`unit/flows/test_hung_vms.py`, `integration/agent/test_heartbeat.py`",
    ),
    pytest.mark.timeout(900),
]

WORKER_0 = ReplicaId(TaskType.WORKER, 0)
FOUND_S = 150.0


def freeze(init: int) -> None:
    """Stop all processes of the VM."""
    processes = [psutil.Process(init)]
    processes += processes[0].children(recursive=True)
    for process in processes:
        process.send_signal(signal.SIGSTOP)


def test_vm_that_hangs_is_replaced_within_two_minutes_and_a_half(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING")
    time.sleep(90)  # its series is known
    worker = lab.vm(job_id, WORKER_0)
    freeze(lab.faults.processes(worker.name)["init"])
    began = time.monotonic()
    lab.until(lambda: lab.state(job_id).job.round.number > 1, FOUND_S + 30)
    took_s = time.monotonic() - began
    print(f"found after {took_s:.0f} s")
    assert is_quick(took_s, FOUND_S)
    assert Reason.AGENT_SILENT in {entry.decision.reason for entry in lab.store.ledger(job_id)}
    # A guest that hangs is deleted after 90 s.
    lab.until(lambda: not lab.state(job_id).job.round.is_held, 300)
    lab.finish(job_id)
    state = lab.wait_for_success(job_id, 120)
    assert (state.job.attempt, [replica.restarts_used for replica in state.replicas]) == (1, [0, 0])
