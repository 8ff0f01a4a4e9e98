"""The variables that launchers and trackers read: which ones a program gets, and that none replaces
a variable of the user or of the platform.

A launcher, such as torchrun, starts the processes of one machine. A tracker, such as W&B, records
runs. The job's `trackingRun` says how many runs a tracker gets: `one` for the whole job, `each` for
each execution of its program.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.program.conventions import (
    launch_variables,
    log_folder_variables,
    run_variables,
)
from trainmaster.agent.program.environment import (
    environment_of,
    platform_variables,
    program_package,
)

PLATFORM: Final = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "chief", "MASTER_PORT": "2222"}
TORCH: Final = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "chief",
    "PET_MASTER_PORT": "2222",
    "PET_NPROC_PER_NODE": "1",
}
JAX: Final = {
    "JAX_COORDINATOR_ADDRESS": "chief:2222",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}
KERAS: Final = {
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "chief:2222",
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
    "KERAS_DISTRIBUTION_PROCESS_ID": "1",
}
RAY: Final = {"RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT": "600"}


@pytest.mark.parametrize(
    ("changes", "gpus", "expected"),
    [
        pytest.param(
            {},
            0,
            {**TORCH, **JAX, **KERAS, **RAY, "ACCELERATE_USE_CPU": "true"},
            id="no GPU",
        ),
        pytest.param({}, 1, {**TORCH, **JAX, **KERAS, **RAY}, id="one GPU"),
        # Keras' variables are for one process per machine, but a launcher starts one per GPU.
        pytest.param({}, 8, {**TORCH, "PET_NPROC_PER_NODE": "8", **JAX, **RAY}, id="eight GPUs"),
        pytest.param({"WORLD_SIZE": "1", "RANK": "0"}, 8, {}, id="cluster of one machine"),
        pytest.param({"TPU_CONFIG": "{}"}, 0, {}, id="TPU hosts find each other"),
        pytest.param({"RANK": None}, 0, {}, id="machine without a rank"),
    ],
)
def test_machines_of_a_cluster_get_the_variables_of_launchers(
    changes: dict[str, str | None], gpus: int, expected: dict[str, str]
) -> None:
    platform = {name: value for name, value in {**PLATFORM, **changes}.items() if value is not None}
    assert launch_variables(platform, gpus) == expected


def test_independent_replicas_get_no_variables_of_launchers() -> None:
    identity = agent_identity(environment=PLATFORM)
    assert "PET_NNODES" in environment_of(identity, {})
    alone = replace(identity, config=replace(identity.config, independent=True))
    assert environment_of(alone, {}) == {"PYTHONFAULTHANDLER": "1", **platform_variables(alone)}
    assert environment_of(alone, {"PYTHONFAULTHANDLER": ""})["PYTHONFAULTHANDLER"] == ""


@pytest.mark.parametrize(
    ("platform", "job_dir", "expected"),
    [
        ({"AIP_TENSORBOARD_LOG_DIR": "gs://b/out/logs/"}, None, "/gcs/b/out/logs/"),
        ({"AIP_TENSORBOARD_LOG_DIR": "gs://b/out/logs/"}, "gs://b/dir", "/gcs/b/out/logs/"),
        ({}, "gs://b/dir/", "/gcs/b/dir/logs"),
        ({}, "gs://b/dir/7", "/gcs/b/dir/7/logs"),
        ({}, None, None),
    ],
)
def test_summary_events_are_written_where_those_of_the_job_are_looked_for(
    platform: dict[str, str], job_dir: str | None, expected: str | None
) -> None:
    assert log_folder_variables(platform, job_dir).get("TENSORBOARD_LOGGING_DIR") == expected


@pytest.mark.parametrize(
    ("module", "args", "package"),
    [
        ("trainer.task", ["-m", "resnet"], "trainer"),
        ("torch.distributed.run", ["--nnodes", "2", "-m", "trainer.ddp", "x"], "trainer"),
        ("accelerate.commands.launch", ["-m", "trainer.ddp"], "trainer"),
        (
            "deepspeed.launcher.runner",
            ["--num_gpus", "8", "--module", "trainer.ddp", "-m", "x"],
            "trainer",
        ),
        ("ray.scripts.scripts", ["symmetric-run", "--", "python", "-m", "own.train"], "own"),
        ("torch.distributed.run", ["train.py"], "torch"),
        ("torch.distributed.run", ["-m"], "torch"),
    ],
)
def test_program_is_the_module_that_a_launcher_starts(
    module: str, args: list[str], package: str
) -> None:
    assert program_package(agent_identity(python_module=module, args=args).config) == package


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), set()),
        (("LEVEL", "XWANDB_A"), set()),  # no name begins with the prefix of a tracker
        (("WANDB_API_KEY",), {"WANDB_RUN_ID", "WANDB_RESUME"}),
        (("COMET_API_KEY",), {"COMET_EXPERIMENT_KEY", "COMET_RESUME_STRATEGY"}),
        (("NEPTUNE_PROJECT",), {"NEPTUNE_CUSTOM_RUN_ID"}),
        # A job that sets a variable of the tracker decides about all of them.
        (("WANDB_API_KEY", "WANDB_RUN_ID"), set()),
        (("WANDB_API_KEY", "WANDB_RESUME"), set()),
        # MLflow would merge all runs of the program, so it gets a run only with `trackingRun: one`.
        (("MLFLOW_TRACKING_URI",), set()),
    ],
)
def test_tracker_that_the_job_names_gets_one_run(
    names: tuple[str, ...], expected: set[str]
) -> None:
    assert set(run_variables("p", "digits_1", names)) == expected


def test_tracking_run_adds_mlflow_or_leaves_all_to_the_trackers() -> None:
    names = ("WANDB_API_KEY",)
    one = run_variables("p", "digits_1", names, tracking_run="one")
    assert set(one) == {
        "SERVERLESS_GPU_COMPUTE_ASSOCIATED_JOB_RUN_ID",
        "WANDB_RUN_ID",
        "WANDB_RESUME",
    }
    assert one == run_variables("p", "digits_1", names, tracking_run="one")
    of_another_job = run_variables("p", "d", names, tracking_run="one")
    assert one["SERVERLESS_GPU_COMPUTE_ASSOCIATED_JOB_RUN_ID"] not in of_another_job.values()
    assert run_variables("p", "digits_1", names, tracking_run="each") == {}


@given(st.text("abZ09_", min_size=1, max_size=120), st.text("abZ09_", min_size=1, max_size=120))
def test_run_is_valid_for_its_tracker_and_its_jobs_own(job_id: str, other: str) -> None:
    names = ("WANDB_A", "COMET_A", "NEPTUNE_A")
    variables = run_variables("p", job_id, names)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,49}", variables["WANDB_RUN_ID"])
    assert re.fullmatch(r"[0-9a-f]{32,50}", variables["COMET_EXPERIMENT_KEY"])
    assert len(variables["NEPTUNE_CUSTOM_RUN_ID"]) <= 36
    ids = {name for name in variables if not name.endswith(("_RESUME", "_RESUME_STRATEGY"))}
    for project, job in (("p", other), ("q", job_id)):
        is_same_job = (project, job) == ("p", job_id)
        run = run_variables(project, job, names)
        assert all((run[name] == variables[name]) is is_same_job for name in ids)


VALUES = st.text(max_size=3)


@given(
    st.dictionaries(
        st.sampled_from(sorted({**TORCH, **JAX, **KERAS, **RAY, "WANDB_RUN_ID": "", "A": ""})),
        VALUES,
    ),
    st.dictionaries(st.sampled_from(["PET_NNODES", "WANDB_API_KEY", "RANK"]), VALUES),
    st.integers(0, 8),
)
def test_no_default_changes_a_variable_of_the_user_or_the_platform(
    variables: dict[str, str], secrets: dict[str, str], gpus: int
) -> None:
    identity = agent_identity(environment=PLATFORM)
    identity = replace(identity, config=replace(identity.config, variables=variables))
    platform = platform_variables(identity, (), gpus)
    environment = environment_of(identity, secrets, (), gpus)
    assert {name: environment[name] for name in {**variables, **secrets, **platform}} == {
        **variables,
        **secrets,
        **platform,
    }


def test_workers_addresses_are_those_of_tf_config() -> None:
    cluster = {"chief": ["c-0:2222"], "worker": ["w-0:2222", "w-1:2222"]}
    platform = {**PLATFORM, "TF_CONFIG": json.dumps({"cluster": cluster})}
    variables = launch_variables(platform, 0)
    assert variables["WORKER_ADDRS"] == "w-0,w-1"
    assert variables["WORKER_PORT"] == "2222"


def test_cluster_without_workers_has_no_addresses_of_workers() -> None:
    platform = {**PLATFORM, "TF_CONFIG": json.dumps({"cluster": {"chief": ["c-0:2222"]}})}
    assert "WORKER_ADDRS" not in launch_variables(platform, 0)
