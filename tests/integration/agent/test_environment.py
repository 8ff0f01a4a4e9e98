"""The environment and the command line of a program.

`agent_identity()` is the identity of worker 1 in a job with a chief and two workers. Its
`rank_base` of 1 is the RANK of worker 0, so its own RANK is 2.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

import pytest

from trainmaster.agent.model.vm_config import VmRef
from trainmaster.agent.program.environment import (
    RANK_VARIABLES,
    command_of,
    environment_of,
)

from .support.vm import FIRST, agent_identity


def test_environment_has_the_task_index_and_leaves_the_config_unchanged() -> None:
    identity = agent_identity()
    environment = environment_of(identity, {})
    assert json.loads(environment["TF_CONFIG"])["task"] == {
        "type": "worker",
        "cloud": "w1-ml",
        "index": 1,
    }
    assert environment["RANK"] == "2"
    other = replace(identity, vm=VmRef(FIRST, "z", "1"))
    assert json.loads(environment_of(other, {})["TF_CONFIG"])["task"]["index"] == 0


def test_environment_has_no_rank_for_a_role_without_ranks() -> None:
    names = set(environment_of(agent_identity(rank_base=None), {}))
    assert not names & {"RANK", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}


@pytest.mark.parametrize("gpus", [0, 1])
def test_environment_has_the_variables_of_launchers_for_one_process_per_machine(gpus: int) -> None:
    environment = environment_of(agent_identity(), {}, gpus=gpus)
    names = ("RANK", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert [environment[name] for name in names] == ["2", "2", "0", "1"]


def test_environment_leaves_local_ranks_to_the_launcher_on_a_machine_with_several_gpus() -> None:
    environment = environment_of(agent_identity(), {}, gpus=4)
    assert environment["NODE_RANK"] == "2"
    assert not set(environment) & {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}


ALONE: Final = {
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "2222",
    "CLOUD_ML_JOB_ID": "digits",
}


def test_environment_of_one_machine_does_not_look_like_a_launch() -> None:
    identity = agent_identity(rank_base=0, environment=ALONE)
    environment = environment_of(identity, {}, gpus=1)
    assert not set(environment) & set(RANK_VARIABLES)
    assert environment["CLOUD_ML_JOB_ID"] == "digits"


def test_environment_of_one_machine_has_the_rank_variables_that_the_job_asks_for() -> None:
    asked = {name: f"$({name})" for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    identity = replace(agent_identity(rank_base=0, environment=ALONE, variables=asked))
    identity = replace(identity, vm=VmRef(FIRST, "z", "1"))
    environment = environment_of(identity, {})
    assert [environment[name] for name in asked] == ["0", "1", "127.0.0.1", "2222"]
    assert "LOCAL_RANK" not in environment


def test_environment_leaves_out_a_variable_that_the_launcher_of_several_gpus_sets() -> None:
    identity = agent_identity(variables={"LOCAL_RANK": "$(LOCAL_RANK)"})
    assert "LOCAL_RANK" not in environment_of(identity, {}, gpus=4)


def test_environment_of_the_last_member_of_an_elastic_job_has_ranks() -> None:
    environment = {**ALONE, "TRAINMASTER_REPLICAS": "4"}
    assert environment_of(agent_identity(environment=environment), {})["WORLD_SIZE"] == "1"


def test_environment_names_the_project_by_its_number_if_known() -> None:
    identity = agent_identity(environment={"CLOUD_ML_PROJECT_ID": "my-project"})
    assert environment_of(identity, {})["CLOUD_ML_PROJECT_ID"] == "my-project"
    assert (
        environment_of(replace(identity, project_number="123"), {})["CLOUD_ML_PROJECT_ID"] == "123"
    )


@pytest.mark.parametrize("job_dir", [None, ""])
def test_command_has_no_job_dir_argument_without_a_job_dir(job_dir: str | None) -> None:
    assert command_of(agent_identity(job_dir=job_dir, args=["-v"]).config) == [
        "python3",
        "-m",
        "trainer.task",
        "-v",
    ]
