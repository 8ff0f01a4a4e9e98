"""Examples of all distribution strategies: each trains a model although one of its replicas is
lost.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Lab
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="distribution strategies continue after a loss on VMs",
        quick=(
            "`e2e/jobs/test_local_run.py` with scikit-learn, `integration/agent/test_program.py`,"
            " `unit/agent/program/test_conventions.py`"
        ),
    ),
    pytest.mark.timeout(500),
]

CHIEF = ReplicaId(TaskType.CHIEF, 0)
WORKER_0, WORKER_1 = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
PS_0, EVALUATOR = ReplicaId(TaskType.PS, 0), ReplicaId(TaskType.EVALUATOR, 0)
TRAINS_S, ENDS_S = 150, 240
"""How long a job may take until its program prints, and until it ends after that."""


def read(lab: Lab, state: State, name: str) -> bytes:
    """Return the content of this object in the job's directory, at most 1 MiB."""
    data = lab.objects.read(f"{state.job.plan.program.job_dir}/{name}", max_bytes=1 << 20)
    assert data is not None
    return data


def accurate_metrics(lab: Lab, state: State, at_least: float = 0.94) -> dict[str, object]:
    """Return the metrics that the program wrote at its end. Fail if their accuracy is lower."""
    metrics: dict[str, object] = json.loads(read(lab, state, "metrics.json"))
    assert float(str(metrics["accuracy"])) >= at_least
    return metrics


def kill_program(lab: Lab, job_id: str, replica_id: ReplicaId) -> None:
    lab.faults.kill_program(vm_name(job_id, replica_id))


def wait_for_output(lab: Lab, job_id: str, replica_id: ReplicaId, words: str) -> None:
    """Wait until the replica has printed the words."""
    lab.until(lambda: lab.replica(job_id, replica_id).ever_ready, TRAINS_S)
    lab.until(lambda: words in lab.console(job_id, replica_id), TRAINS_S)


def replicas_by_id(state: State) -> dict[ReplicaId, Replica]:
    return {replica.replica_id: replica for replica in state.replicas}


@pytest.mark.parametrize(
    ("example", "replicas"), [("tf_mirrored", 2), ("tf_central_storage", 2), ("tf_one_device", 1)]
)
def test_one_vm_strategy_continues_from_its_checkpoint(
    lab: Lab, example: str, replicas: int
) -> None:
    job_id = lab.example(example)
    wait_for_output(lab, job_id, CHIEF, "epoch 3/")
    kill_program(lab, job_id, CHIEF)
    state = lab.wait_for_success(job_id, ENDS_S)
    assert accurate_metrics(lab, state)["replicas"] == replicas
    assert replicas_by_id(state)[CHIEF].restarts_used == 1


def test_parameter_server_training_survives_a_lost_worker_and_a_lost_server(lab: Lab) -> None:
    job_id = lab.example("tf_parameter_server")
    wait_for_output(lab, job_id, CHIEF, "epoch 2/")
    kill_program(lab, job_id, WORKER_0)
    lab.until(lambda: lab.replica(job_id, WORKER_0).incarnation == 2, TRAINS_S)
    wait_for_output(lab, job_id, CHIEF, "epoch 6/")
    assert lab.replica(job_id, CHIEF).incarnation == 1, "the other worker took its steps"
    kill_program(lab, job_id, PS_0)
    state = lab.wait_for_success(job_id, ENDS_S)
    # Training with parameter servers is asynchronous, and the lost server goes back to its
    # checkpoint.
    assert accurate_metrics(lab, state, at_least=0.9)["servers"] == {
        "chief": 1,
        "worker": 2,
        "ps": 2,
    }
    replicas = replicas_by_id(state)
    assert (replicas[WORKER_0].restarts_used, replicas[WORKER_1].incarnation) == (1, 1)
    assert replicas[PS_0].incarnation == 2
    assert replicas[CHIEF].restarts_used == 1, (
        "parameter servers, workers and the chief are judged each alone"
    )


def test_lost_evaluator_does_not_restart_the_chief(lab: Lab) -> None:
    job_id = lab.example("tf_evaluator")
    wait_for_output(lab, job_id, EVALUATOR, "evaluated epoch ")
    kill_program(lab, job_id, EVALUATOR)
    state = lab.wait_for_success(job_id, ENDS_S)
    evaluated = accurate_metrics(lab, state)["evaluated_epochs"]
    assert isinstance(evaluated, list)
    assert evaluated[-1] == 12, "the chief waited for the last evaluation"
    assert float(read(lab, state, f"evaluations/{job_id}/12")) > 0.9
    replicas = replicas_by_id(state)
    assert (replicas[EVALUATOR].incarnation, replicas[CHIEF].incarnation) == (2, 1)


def test_torchrun_restarts_its_ranks_after_a_launcher_restart(lab: Lab) -> None:
    job_id = lab.example("pytorch_torchrun")
    wait_for_output(lab, job_id, CHIEF, "epoch 3/")
    kill_program(lab, job_id, WORKER_0)
    state = lab.wait_for_success(job_id, ENDS_S)
    metrics = accurate_metrics(lab, state)
    assert metrics["replicas"] == 4, "two ranks on each of two VMs"
    assert "resuming from epoch" in lab.stack.run("trainmaster", "logs", job_id).stdout
    replicas = replicas_by_id(state)
    restarts = [replicas[replica_id].restarts_used for replica_id in (CHIEF, WORKER_0)]
    assert (restarts, state.job.round.number) == ([0, 1], 2), lab.story(job_id)


def test_xgboost_after_a_lost_worker_continues_with_one_round(lab: Lab) -> None:
    job_id = lab.example("xgboost_distributed")
    wait_for_output(lab, job_id, CHIEF, "round 5/")
    kill_program(lab, job_id, WORKER_1)
    state = lab.wait_for_success(job_id, ENDS_S)
    assert accurate_metrics(lab, state)["replicas"] == 3
    by_id = replicas_by_id(state)
    replicas = [by_id[replica_id] for replica_id in (CHIEF, WORKER_0, WORKER_1)]
    assert [replica.incarnation for replica in replicas] == [2, 2, 2], "all have started again"
    assert [replica.restarts_used for replica in replicas] == [0, 0, 1], lab.story(job_id)


@pytest.mark.parametrize("example", ["xgboost_digits", "sklearn_digits"])
def test_example_on_one_machine_succeeds(lab: Lab, example: str) -> None:
    accurate_metrics(lab, lab.wait_for_success(lab.example(example), ENDS_S))
