"""The job of a trial, the environment of its program, and what a resumed tuning job begins with.

A tuning job runs a job for each trial, an assignment of values to its parameters. In the letters of
`a_tuning_job`, each is a trial: q is queued, s succeeded, f failed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import a_plan, at, change_plan
from tests.support.tuning_jobs import a_tuning_job
from trainmaster.core.cluster.environment import environment
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.search_space import Parameter, ParameterKind
from trainmaster.core.model.task_group import Container, Program, TaskGroup
from trainmaster.core.model.tuning import EarlierTrial, Trial, Tuning
from trainmaster.core.reconcile.trial_jobs import results_to_resume, trial_job

TRIAL = Trial(1, ("0.01", "2"))
"""The values are those of the parameters learning rate and layers."""


def test_every_role_of_a_trial_gets_its_values_and_its_directory() -> None:
    server = Program(
        package_uris=(),
        python_module="",
        args=("--serve",),
        job_dir=None,
        container=Container("image"),
    )
    groups = (
        TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"),
        TaskGroup(TaskType.PS, 1, "n1-standard-4", program=server),
    )
    parent = replace(a_tuning_job("q"), plan=a_plan(groups=groups, output_directory="gs://b/out/"))
    plan = trial_job(parent, replace(TRIAL, number=3), at(100)).plan
    flags = ("--learning-rate", "0.01", "--layers", "2")
    assert plan.program_of(TaskType.CHIEF).args == ("--epochs", "5", *flags)
    assert plan.program_of(TaskType.PS).args == ("--serve", *flags)
    assert plan.program_of(TaskType.CHIEF).job_dir == "gs://bucket/digits/3"
    assert plan.program_of(TaskType.PS).job_dir is None
    assert plan.origin.output_directory == "gs://b/out/3"


def test_trial_job_has_its_own_id_and_limits_but_no_wait_deadline() -> None:
    parent = a_tuning_job("q")
    job = trial_job(parent, replace(TRIAL, number=3), at(100))
    assert (job.job_id, job.spec_json, job.tuning) == ("digits_1-trial-3", parent.spec_json, None)
    assert job.plan.limits.max_wait_s is None, (
        "the wait of the tuning job ended when it began to run"
    )
    assert (job.plan.limits.max_running_s, job.plan.where.zones) == (
        parent.plan.limits.max_running_s,
        parent.plan.where.zones,
    )


def test_repeated_trial_job_differs_only_in_its_time_of_creation() -> None:
    parent = a_tuning_job("q")
    first, second = (trial_job(parent, TRIAL, moment) for moment in (at(1), at(2)))
    assert replace(second, created_at=first.created_at) == first


def a_trial_cluster(dialect: Dialect = Dialect.AI_PLATFORM) -> Cluster:
    parent = a_tuning_job("q")
    parent = replace(parent, plan=change_plan(parent.plan, dialect=dialect))
    return Cluster(
        trial_job(parent, TRIAL, at(100)),
        "my-project",
        {ReplicaId(TaskType.CHIEF, 0): "chief:2222"},
    )


def test_tf_config_of_a_trial_has_the_documented_fields() -> None:
    """Source: the service's documented TF_CONFIG. The agent adds `index` to `task`."""
    config = a_trial_cluster().tf_config(TaskType.CHIEF)
    assert list(config) == ["cluster", "task", "job", "environment"]
    assert config["cluster"] == {"chief": ["127.0.0.1:2222"]}
    task = config["task"]
    assert isinstance(task, dict)
    assert set(task) == {"type", "trial", "cloud"}
    assert (task["type"], task["trial"]) == ("chief", "1")
    assert task["cloud"].endswith("-ml")
    assert config["environment"] == "cloud"


def test_job_in_tf_config_of_a_trial_is_the_tuning_job_as_submitted() -> None:
    job = a_trial_cluster().tf_config(TaskType.CHIEF)["job"]
    assert isinstance(job, dict)
    assert job["hyperparameters"] == {
        "goal": "MAXIMIZE",
        "params": [
            {"parameter_name": "layers", "type": "INTEGER", "min_value": 1, "max_value": 3},
            {"parameter_name": "width", "type": "DISCRETE", "discrete_values": [16, 32]},
        ],
        "max_trials": 3,
        "max_parallel_trials": 2,
        "hyperparameter_metric_tag": "accuracy",
    }
    assert job["args"] == ["--epochs", "5"]


@pytest.mark.parametrize("dialect", Dialect)
def test_cluster_spec_of_a_trial_has_its_number(dialect: Dialect) -> None:
    task = a_trial_cluster(dialect).cluster_spec(TaskType.CHIEF)["task"]
    assert isinstance(task, dict)
    assert task["trial"] == "1"


@pytest.mark.parametrize("dialect", Dialect)
def test_environment_of_a_trial_has_its_number_its_metric_and_the_tuning_jobs_id(
    dialect: Dialect,
) -> None:
    variables = environment(
        a_trial_cluster(dialect), TaskType.CHIEF, "us-central1-a", ("tm-digits-chief-0",)
    )
    assert variables["CLOUD_ML_JOB_ID"] == "digits_1"
    assert variables["CLOUD_ML_TRIAL_ID"] == "1"
    assert variables["CLOUD_ML_HP_METRIC_TAG"] == "training/hptuning/metric"
    assert "CLOUD_ML_HP_METRIC_FILE" not in variables, "the agent sets it"


def test_results_to_resume_are_earlier_results_and_own_successful_trials() -> None:
    tuning = a_tuning_job("sfs", earlier=(EarlierTrial(("0.5", "1"), 0.7),)).tuning
    assert tuning is not None
    assert results_to_resume(tuning) == (
        EarlierTrial(("0.5", "1"), 0.7),
        EarlierTrial(("0.001", "1"), 0.1),
        EarlierTrial(("0.003", "3"), 0.3),
    )


def test_results_to_resume_are_the_latest_that_fit_into_a_ledger_entry() -> None:
    """Of 30 results of 10 KB each, the latest 20 fit into `EARLIER_BYTES_MAX`, 200 KB."""
    prompt = Parameter("prompt", ParameterKind.CATEGORICAL, choices=("x" * 9_998, "y" * 9_998))
    earlier = tuple(
        EarlierTrial((prompt.choices[number % 2],), number / 100) for number in range(30)
    )
    results = results_to_resume(Tuning((prompt,), earlier=earlier))
    assert [result.value for result in results] == [number / 100 for number in range(10, 30)]
