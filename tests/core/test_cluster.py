"""What the training code sees, against the service's documented samples."""

from __future__ import annotations

import json

from shared.core.cluster import Cluster
from shared.core.jobs import TaskGroup
from shared.core.seats import Seat, TaskType
from tests.support.jobs import a_job, a_plan, a_spec


def a_cluster(*groups: TaskGroup) -> Cluster:
    plan = a_plan(groups=groups) if groups else a_plan()
    addresses = {seat: f"{seat}.internal:2222" for seat in plan.seats}
    return Cluster(a_job(plan=plan), "my-project", addresses)


def a_group(task_type: TaskType, count: int = 1) -> TaskGroup:
    return TaskGroup(task_type, count, "n1-standard-4")


def test_tf_config_has_the_four_documented_keys() -> None:
    config = a_cluster().tf_config(TaskType.WORKER)
    assert list(config) == ["cluster", "task", "job", "environment"]
    assert config["cluster"] == {
        "chief": ["chief-0.internal:2222"],
        "worker": ["worker-0.internal:2222", "worker-1.internal:2222"],
    }
    assert config["environment"] == "cloud"
    assert config["task"]["type"] == "worker"  # type: ignore[index]
    json.dumps(config)


def test_the_job_in_tf_config_is_the_training_input_in_snake_case() -> None:
    job = a_cluster().tf_config(TaskType.CHIEF)["job"]
    assert job == {
        "scale_tier": "CUSTOM",
        "master_type": "n1-standard-4",
        "worker_type": "n1-standard-4",
        "worker_count": 2,
        "package_uris": ["gs://bucket/trainer-0.1.tar.gz"],
        "python_module": "trainer.task",
        "args": ["--epochs", "5"],
        "job_dir": "gs://bucket/digits",
        "region": "us-central1",
        "runtime_version": "2.21",
    }
    assert len(job) == len(a_spec()["trainingInput"])  # type: ignore[arg-type]


def test_an_evaluator_stands_beside_the_cluster() -> None:
    cluster = a_cluster(a_group(TaskType.CHIEF), a_group(TaskType.PS, 2), a_group(TaskType.EVALUATOR))
    assert list(cluster.roles()) == ["chief", "ps"]
    assert cluster.tf_config(TaskType.EVALUATOR)["task"]["type"] == "evaluator"  # type: ignore[index]


def test_ranks_count_the_primary_first_and_then_the_workers() -> None:
    cluster = a_cluster(a_group(TaskType.MASTER), a_group(TaskType.WORKER, 3), a_group(TaskType.PS, 2))
    assert [cluster.rank_base(each) for each in (TaskType.MASTER, TaskType.WORKER, TaskType.PS)] == [0, 1, None]
    environment = cluster.environment()
    assert environment["WORLD_SIZE"] == "4"
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("master-0.internal", "2222")


def test_without_a_master_worker_0_is_the_primary() -> None:
    cluster = a_cluster(a_group(TaskType.WORKER, 2))
    assert cluster.job.plan.primary == Seat(TaskType.WORKER, 0)
    assert cluster.rank_base(TaskType.WORKER) == 0
    assert cluster.environment()["MASTER_ADDR"] == "worker-0.internal"


def test_the_job_is_in_the_environment_as_the_service_put_it() -> None:
    environment = a_cluster().environment()
    assert environment["CLOUD_ML_JOB_ID"] == "digits_1"
    assert json.loads(environment["CLOUD_ML_JOB"])["python_module"] == "trainer.task"
    assert json.loads(str(a_cluster().cluster_spec(TaskType.CHIEF)["job"]))["region"] == "us-central1"
