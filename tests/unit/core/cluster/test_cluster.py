"""TF_CONFIG, CLUSTER_SPEC and environment of the training code, compared with the service's
documented samples.

A slice is a TPU machine of one or more hosts. The rank base of a role is the rank of its first host
in the cluster; its slice base is the number of its first slice.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tests.support.jobs import a_job, a_plan, a_spec
from trainmaster.core.cluster.environment import environment
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import Container, Program, TaskGroup, Tpu


def a_cluster(*groups: TaskGroup) -> Cluster:
    plan = a_plan(groups=groups) if groups else a_plan()
    addresses = {replica_id: f"{replica_id}.internal:2222" for replica_id in plan.replica_ids}
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


def test_job_in_tf_config_is_the_training_input_in_snake_case() -> None:
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


def test_evaluator_is_not_a_member_of_the_cluster() -> None:
    cluster = a_cluster(
        a_group(TaskType.CHIEF), a_group(TaskType.PS, 2), a_group(TaskType.EVALUATOR)
    )
    assert list(cluster.roles()) == ["chief", "ps"]
    assert cluster.tf_config(TaskType.EVALUATOR)["task"]["type"] == "evaluator"  # type: ignore[index]


def variables_of(cluster: Cluster, task_type: TaskType = TaskType.CHIEF) -> dict[str, str]:
    return environment(cluster, task_type, "us-central1-a", (f"tm-digits-{task_type}-0",))


def test_single_replica_has_the_loopback_address() -> None:
    config = a_cluster(a_group(TaskType.CHIEF)).tf_config(TaskType.CHIEF)
    assert config["cluster"] == {"chief": ["127.0.0.1:2222"]}


def test_ranks_count_the_primary_first_and_then_the_workers() -> None:
    cluster = a_cluster(
        a_group(TaskType.MASTER), a_group(TaskType.WORKER, 3), a_group(TaskType.PS, 2)
    )
    assert [
        cluster.rank_base(task_type)
        for task_type in (TaskType.MASTER, TaskType.WORKER, TaskType.PS)
    ] == [
        0,
        1,
        None,
    ]
    variables = variables_of(cluster, TaskType.PS)
    assert variables["WORLD_SIZE"] == "4"
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("master-0.internal", "2222")


def test_every_host_of_a_slice_has_a_rank() -> None:
    slices = TaskGroup(
        TaskType.WORKER, 2, machine_type="", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
    )
    cluster = a_cluster(a_group(TaskType.CHIEF), slices)
    assert (cluster.world_size(), cluster.rank_base(TaskType.WORKER)) == (9, 1)


def test_slices_with_peers_have_placeholders_for_their_addresses() -> None:
    tpu = Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
    cluster = a_cluster(
        TaskGroup(TaskType.CHIEF, 1, machine_type="", tpu=tpu),
        TaskGroup(TaskType.WORKER, 2, machine_type="", tpu=tpu),
    )
    assert cluster.roles() == {
        "chief": ["slice-0.trainmaster.internal:2222"],
        "worker": ["slice-1.trainmaster.internal:2222", "slice-2.trainmaster.internal:2222"],
    }
    variables = variables_of(cluster, TaskType.WORKER)
    assert variables["MASTER_ADDR"] == "slice-0.trainmaster.internal"
    assert {name: value for name, value in variables.items() if name.startswith("MEGASCALE")} == {
        "MEGASCALE_COORDINATOR_ADDRESS": "slice-0.trainmaster.internal:8080",
        "MEGASCALE_NUM_SLICES": "3",
        "MEGASCALE_PORT": "8080",
    }
    assert [cluster.slice_base(task_type) for task_type in (TaskType.CHIEF, TaskType.WORKER)] == [
        0,
        1,
    ]


def test_slice_base_exists_only_for_several_slices_of_one_type() -> None:
    small, large = Tpu("v5litepod-8", "r"), Tpu("v5litepod-16", "r", hosts=4)
    for groups in (
        (
            TaskGroup(TaskType.CHIEF, 1, machine_type="", tpu=small),
            TaskGroup(TaskType.WORKER, 1, machine_type="", tpu=large),
        ),
        (a_group(TaskType.CHIEF), TaskGroup(TaskType.WORKER, 1, machine_type="", tpu=large)),
    ):
        cluster = a_cluster(*groups)
        assert cluster.slice_base(TaskType.WORKER) is None
        assert not [
            name for name in variables_of(cluster, TaskType.WORKER) if name.startswith("MEGASCALE")
        ]
    with_vm = a_cluster(
        a_group(TaskType.CHIEF), TaskGroup(TaskType.WORKER, 2, machine_type="", tpu=large)
    )
    assert [with_vm.slice_base(task_type) for task_type in (TaskType.CHIEF, TaskType.WORKER)] == [
        None,
        0,
    ]
    assert with_vm.address(ReplicaId(TaskType.CHIEF, 0)) == "chief-0.internal:2222"


def test_program_on_a_tpu_gets_its_node_and_the_name_local() -> None:
    cluster = a_cluster(
        TaskGroup(TaskType.CHIEF, 1, machine_type="", tpu=Tpu("v5litepod-8", "v2-alpha-tpuv5-lite"))
    )
    variables = variables_of(cluster)
    assert json.loads(variables["TPU_CONFIG"]) == {
        "project": "my-project",
        "zone": "us-central1-a",
        "tpu_node_name": "tm-digits-chief-0",
    }
    assert variables["TPU_NAME"] == "local"
    assert "TPU_CONFIG" not in variables_of(a_cluster())


def test_worker_0_is_the_primary_without_a_master() -> None:
    cluster = a_cluster(a_group(TaskType.WORKER, 2))
    assert cluster.job.plan.primary == ReplicaId(TaskType.WORKER, 0)
    assert cluster.rank_base(TaskType.WORKER) == 0
    assert variables_of(cluster, TaskType.WORKER)["MASTER_ADDR"] == "worker-0.internal"


def test_environment_of_an_ai_platform_job_describes_the_job() -> None:
    variables = variables_of(a_cluster())
    assert (variables["CLOUD_ML_JOB_ID"], variables["CLOUD_ML_REGION"]) == (
        "digits_1",
        "us-central1",
    )
    assert json.loads(variables["CLOUD_ML_JOB"])["python_module"] == "trainer.task"
    assert (
        json.loads(str(a_cluster().cluster_spec(TaskType.CHIEF)["job"]))["region"] == "us-central1"
    )
    assert not any(name.startswith("AIP_") for name in variables)


def a_vertex_cluster() -> Cluster:
    groups = (
        a_group(TaskType.CHIEF),
        replace(
            a_group(TaskType.WORKER, 2),
            program=Program(
                package_uris=(),
                python_module="",
                args=("--fast",),
                job_dir=None,
                container=Container("img:1", ("run",)),
            ),
        ),
        a_group(TaskType.EVALUATOR),
    )
    base = "gs://bucket/out/"
    plan = a_plan(groups=groups, dialect=Dialect.VERTEX, output_directory=base)
    return Cluster(
        a_job(plan=plan),
        "my-project",
        {replica_id: f"{replica_id}.internal:2222" for replica_id in plan.replica_ids},
    )


def test_worker_pools_have_numbers_in_cluster_spec_and_roles_in_tf_config() -> None:
    cluster = a_vertex_cluster()
    spec = cluster.cluster_spec(TaskType.WORKER)
    assert spec["cluster"] == {
        "workerpool0": ["chief-0.internal:2222"],
        "workerpool1": ["worker-0.internal:2222", "worker-1.internal:2222"],
        "workerpool3": ["evaluator-0.internal:2222"],
    }
    assert spec["task"] == {"type": "workerpool1", "trial": ""}
    assert list(cluster.tf_config(TaskType.WORKER)["cluster"]) == ["chief", "worker"]  # type: ignore[call-overload]


def test_each_worker_pool_sees_its_own_program() -> None:
    cluster = a_vertex_cluster()
    assert json.loads(str(cluster.cluster_spec(TaskType.WORKER)["job"])) == {
        "image_uri": "img:1",
        "command": ["run"],
        "args": ["--fast"],
    }
    assert json.loads(str(cluster.cluster_spec(TaskType.CHIEF)["job"])) == {
        "python_module": "trainer.task",
        "package_uris": ["gs://bucket/trainer-0.1.tar.gz"],
        "job_args": ["--epochs", "5"],
    }


def test_environment_of_a_vertex_job_has_its_output_directories() -> None:
    variables = variables_of(a_vertex_cluster())
    assert variables["AIP_MODEL_DIR"] == "gs://bucket/out/model/"
    assert variables["AIP_CHECKPOINT_DIR"] == "gs://bucket/out/checkpoints/"
    assert variables["AIP_TENSORBOARD_LOG_DIR"] == "gs://bucket/out/logs/"
    assert "CLOUD_ML_JOB" not in variables
