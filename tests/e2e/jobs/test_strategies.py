"""Each distribution strategy from its own job file to a model, with one of its replicas lost on the way."""

from __future__ import annotations

import json

import pytest

from examples import package
from shared.core.decisions import Rule
from shared.core.model.job import State
from shared.core.model.replica import Replica
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm_names import vm_name
from tests.e2e.conftest import Lab

pytestmark = [pytest.mark.e2e, pytest.mark.heavy, pytest.mark.timeout(500)]

CHIEF = ReplicaId(TaskType.CHIEF, 0)
WORKER_0, WORKER_1 = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
PS_0, EVALUATOR = ReplicaId(TaskType.PS, 0), ReplicaId(TaskType.EVALUATOR, 0)
TRAINS_S, ENDS_S = 150, 240


def submit(lab: Lab, example: str) -> str:
    return lab.example(example, trainer=package.trainer_of(example))


def stored(lab: Lab, state: State, name: str = "metrics.json") -> dict[str, object]:
    data = lab.objects.read(f"{state.job.plan.program.job_dir}/{name}", max_bytes=1 << 20)
    assert data is not None
    found = json.loads(data)
    assert isinstance(found, dict)
    assert found["job_id"] == state.job.job_id
    return found


def learned(lab: Lab, state: State) -> dict[str, object]:
    metrics = stored(lab, state)
    assert float(str(metrics["accuracy"])) >= 0.94
    return metrics


def kill(lab: Lab, job_id: str, replica_id: ReplicaId) -> None:
    lab.faults.kill_program(vm_name(job_id, replica_id))


def said(lab: Lab, job_id: str, replica_id: ReplicaId, words: str) -> None:
    """Wait until the replica has."""
    lab.until(lambda: lab.replica(job_id, replica_id).ever_ready, TRAINS_S)
    lab.until(lambda: words in lab.console(job_id, replica_id), TRAINS_S)


def by_replica_id(state: State) -> dict[ReplicaId, Replica]:
    return {replica.replica_id: replica for replica in state.replicas}


@pytest.mark.parametrize(("example", "replicas"), [("tf_mirrored", 2), ("tf_central_storage", 2), ("tf_one_device", 1)])
def test_a_strategy_of_one_vm_goes_on_from_its_checkpoint(lab: Lab, example: str, replicas: int) -> None:
    job_id = submit(lab, example)
    said(lab, job_id, CHIEF, "epoch 3/")
    kill(lab, job_id, CHIEF)
    state = lab.ended_well(job_id, ENDS_S)
    assert learned(lab, state)["replicas"] == replicas
    assert by_replica_id(state)[CHIEF].restarts_used == 1


def test_parameter_servers_bear_a_lost_worker_and_the_chief_the_loss_of_one_of_them(lab: Lab) -> None:
    job_id = submit(lab, "tf_parameter_server")
    said(lab, job_id, CHIEF, "epoch 2/")
    kill(lab, job_id, WORKER_0)
    lab.until(lambda: lab.replica(job_id, WORKER_0).incarnation == 2, TRAINS_S)
    said(lab, job_id, CHIEF, "epoch 6/")
    assert lab.replica(job_id, CHIEF).incarnation == 1, "the others did its steps"
    kill(lab, job_id, PS_0)
    state = lab.ended_well(job_id, ENDS_S)
    assert learned(lab, state)["servers"] == {"chief": 1, "worker": 2, "ps": 2}
    replica_ids = by_replica_id(state)
    assert (replica_ids[WORKER_0].restarts_used, replica_ids[WORKER_1].incarnation) == (1, 1)
    assert replica_ids[PS_0].incarnation == 2
    assert (replica_ids[CHIEF].restarts_used, replica_ids[CHIEF].collateral) == (0, 1), lab.story(job_id)


def test_an_evaluator_beside_the_training_costs_it_nothing_when_it_is_lost(lab: Lab) -> None:
    job_id = submit(lab, "tf_evaluator")
    said(lab, job_id, EVALUATOR, "evaluated epoch ")
    kill(lab, job_id, EVALUATOR)
    state = lab.ended_well(job_id, ENDS_S)
    metrics = learned(lab, state)
    evaluations = stored(lab, state, "evaluations.json")["accuracy_by_epoch"]
    assert isinstance(evaluations, dict)
    assert metrics["evaluated_epochs"] == sorted(map(int, evaluations))
    assert "12" in evaluations, "the chief waited for the last word"
    replica_ids = by_replica_id(state)
    assert (replica_ids[EVALUATOR].incarnation, replica_ids[CHIEF].incarnation) == (2, 1)


def test_torchrun_brings_its_ranks_back_when_the_platform_has_brought_back_the_vm(lab: Lab) -> None:
    job_id = submit(lab, "pytorch_torchrun")
    said(lab, job_id, CHIEF, "epoch 3/")
    kill(lab, job_id, WORKER_0)
    state = lab.ended_well(job_id, ENDS_S)
    metrics = learned(lab, state)
    assert metrics["replicas"] == 4, "two ranks on each of two VMs"
    assert metrics["resumed_from_epoch"], "no rank began again"
    replica_ids = by_replica_id(state)
    assert (replica_ids[WORKER_0].restarts_used, replica_ids[CHIEF].incarnation) == (1, 1), (
        "the other launcher never ended"
    )


def test_xgboost_loses_a_worker_and_all_go_on_with_the_same_round(lab: Lab) -> None:
    job_id = submit(lab, "xgboost_distributed")
    said(lab, job_id, CHIEF, "round 5/")
    kill(lab, job_id, WORKER_1)
    state = lab.ended_well(job_id, ENDS_S)
    assert learned(lab, state)["replicas"] == 3
    replica_ids = by_replica_id(state)
    assert [replica_ids[replica_id].incarnation for replica_id in (CHIEF, WORKER_0, WORKER_1)] == [2, 2, 2]
    assert [replica_ids[replica_id].restarts_used for replica_id in (CHIEF, WORKER_0, WORKER_1)] == [0, 0, 1], (
        lab.story(job_id)
    )
    assert Rule.COLLATERAL in {entry.decision.rule for entry in lab.decisions(job_id)}


def test_xgboost_alone_needs_no_peers(lab: Lab) -> None:
    state = lab.ended_well(submit(lab, "xgboost_digits"), ENDS_S)
    assert learned(lab, state)["replicas"] == 1
