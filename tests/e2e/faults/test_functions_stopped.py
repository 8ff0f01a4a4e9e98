"""Stopped functions: training continues, and the events are judged correctly when the functions run
again.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name

HEAVY = pytest.mark.heavy(
    fact="training continues while functions are stopped, and late events count once",
    quick="`sim`, `unit/flows/test_late_losses.py`, `integration/compute/test_system_events.py`",
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

CHIEF, WORKER_0, WORKER_1 = (
    ReplicaId(TaskType.CHIEF, 0),
    ReplicaId(TaskType.WORKER, 0),
    ReplicaId(TaskType.WORKER, 1),
)
ALL_FUNCTIONS = (
    "upload",
    "submit",
    "vm_ready",
    "replica_exit",
    "maintenance",
    "provision",
    "sweep",
)
BLACKOUT_S = float(os.environ.get("TRAINMASTER_TEST_BLACKOUT_S", "10"))
"""Seconds without functions. The environment variable allows longer manual tests."""


def steps_done(lab: Lab, job_id: str, replica_id: ReplicaId) -> int:
    return max(
        (int(step) for step in re.findall(r"step (\d+)/", lab.console(job_id, replica_id))),
        default=0,
    )


@HEAVY
def test_training_continues_while_functions_are_stopped_and_events_count_once(lab: Lab) -> None:
    job_id = lab.scripted(workers=2, steps=MANY_STEPS)
    lab.wait_for_programs(job_id)
    with lab.stopped(*ALL_FUNCTIONS, and_then=signal.SIGKILL):  # the stack starts them again
        began = steps_done(lab, job_id, CHIEF)
        lab.faults.kill_program(vm_name(job_id, WORKER_0))
        time.sleep(BLACKOUT_S)
        # The chief continued training.
        lab.until(lambda: steps_done(lab, job_id, CHIEF) > began + BLACKOUT_S * 5, 20)
        assert lab.store.entry(job_id, "1-worker-0-1-vm-1-exit") is None, (
            "the exit cannot have been judged yet"
        )
    lab.until(lambda: lab.replica(job_id, WORKER_0).incarnation == 2, 90)
    lab.finish(job_id)
    state = lab.wait_for_success(job_id, 120)
    assert [replica.restarts_used for replica in state.replicas] == [0, 1, 0]
    assert state.job.attempt == 1
    keys = [entry.key for entry in lab.store.ledger(job_id)]
    assert len(keys) == len(set(keys))


def digits(lab: Lab) -> str:
    return lab.example("digits")


def synchronous_job(lab: Lab) -> str:
    return lab.scripted(args=["--steps", "60", "--step-seconds", "0.2", "--together"])


@HEAVY
@pytest.mark.parametrize(
    ("submit", "word"),
    [
        pytest.param(synchronous_job, "step 2/", id="plain sockets"),
        pytest.param(digits, "epoch 2/", id="tensorflow"),
    ],
)
def test_loss_that_becomes_known_after_its_peers_exits_costs_nobody_a_restart(
    lab: Lab, submit: Callable[[Lab], str], word: str
) -> None:
    """In synchronous training, the exits of the peers are judged before the loss of the VM becomes
    known.
    """
    job_id = submit(lab)
    lab.wait(job_id, "RUNNING", 90)
    lab.until(lambda: word in lab.console(job_id, CHIEF), 90)
    with lab.stopped("maintenance", "provision", and_then=signal.SIGKILL):
        lab.faults.crash(vm_name(job_id, WORKER_1))
        lab.until(lambda: lab.state(job_id).job.round.is_held, 60)
        assert lab.replica(job_id, WORKER_1).vm_generation == 1, "the loss is not known yet"
    state = lab.wait_for_success(job_id, 200)
    assert [replica.restarts_used for replica in state.replicas] == [0, 0, 0], lab.story(job_id)
    assert [replica.replaced for replica in state.replicas] == [0, 0, 1]
    loss = next(
        entry for entry in lab.decisions(job_id) if entry.decision.action.kind == "replace_vm"
    )
    assert loss.decision.reason in (Reason.HOST_ERROR, Reason.GONE)
    verdicts = [
        entry.decision.text
        for entry in lab.decisions(job_id)
        if entry.decision.action.kind == "begin_round"
    ]
    assert len(verdicts) == 1, lab.story(job_id)
    assert "VM of worker 1" in verdicts[0]
