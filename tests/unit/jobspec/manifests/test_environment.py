"""Variables and host names that Kubernetes or an operator gives to the pods of a manifest: a job's
program gets the same values, or the manifest is refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.jobspec.manifests.documents import IMAGE, a_jobset, a_pytorch_job, pod_of
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.manifests.convert import convert
from trainmaster.jobspec.problems import InvalidJob


def pool_variables(manifest: dict[str, Any]) -> list[dict[str, str]]:
    """Return the environment of each worker pool that the manifest leads to."""
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    return [
        {item["name"]: item["value"] for item in pool["containerSpec"].get("env", [])}
        for pool in pools
    ]


def test_elastic_job_of_fixed_size_gets_rendezvous_variables() -> None:
    manifest = a_pytorch_job(
        elasticPolicy={
            "minReplicas": 2,
            "maxReplicas": 2,
            "rdzvConf": [{"key": "last_call_timeout", "value": "30"}],
        }
    )
    del manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    variables = {item["name"]: item["value"] for item in pools[1]["containerSpec"]["env"]}
    assert [pool["replicaCount"] for pool in pools] == [1, 1]
    assert variables["PET_RDZV_ENDPOINT"] == "$(MASTER_ADDR):$(MASTER_PORT)"
    assert variables["PET_NNODES"] == "$(WORLD_SIZE):$(WORLD_SIZE)"
    assert variables["PET_RDZV_CONF"] == "last_call_timeout=30"


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob"])
def test_job_of_one_pod_asks_for_the_variables_that_the_operator_sets(kind: str) -> None:
    manifest = a_pytorch_job()
    specs = manifest["spec"].pop("pytorchReplicaSpecs")
    del specs["Worker"]
    manifest["kind"] = kind
    manifest["spec"]["pytorchReplicaSpecs" if kind == "PyTorchJob" else "xgbReplicaSpecs"] = specs
    document = convert(manifest, "us-central1")
    (pool,) = document["jobSpec"]["workerPoolSpecs"]
    variables = {item["name"]: item["value"] for item in pool["containerSpec"]["env"]}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        assert variables[name] == f"$({name})"
    accept(document, default_job_id=None)


def test_host_name_of_primary_becomes_master_addr_in_arguments() -> None:
    manifest = a_pytorch_job()
    (container,) = pod_of(manifest, "Worker")["containers"]
    container["args"] = ["--init", "tcp://digits-master-0.kubeflow.svc:23456"]
    _, workers = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    assert workers["containerSpec"]["args"] == ["--init", "tcp://$(MASTER_ADDR):23456"]


def test_variables_that_kubernetes_sets_in_each_pod_have_their_values() -> None:
    index = {"JOB_COMPLETION_INDEX": "$(RANK)"}
    assert pool_variables(a_jobset(["python", "train.py"])) == [index] * 2
    by_host = a_jobset(["bash", "-c", "RANK=${HOSTNAME##*-} python train.py"])
    assert pool_variables(by_host) == [{**index, "HOSTNAME": "digits-workers-0-$(RANK)"}] * 2
    assert pool_variables(a_jobset(["python", "train.py"], pods=1)) == [
        {"JOB_COMPLETION_INDEX": "0"}
    ]
    several = a_jobset(["train", "--id=$(JOB_COMPLETION_INDEX)"], pods=1, replicas=3)
    assert pool_variables(several) == [{"JOB_COMPLETION_INDEX": "0"}] * 2
    assert pool_variables(a_jobset(["python", "train.py"], completionMode="NonIndexed")) == [{}] * 2


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(
            a_jobset(["train", "--id=$(JOB_COMPLETION_INDEX)"], replicas=2),
            id="index of pods of two Jobs",
        ),
        pytest.param(
            a_jobset(["sh", "-c", "train --id=$JOB_COMPLETION_INDEX"], completionMode="NonIndexed"),
            id="index of pods that have none",
        ),
        pytest.param(
            a_jobset(["sh", "-c", "RANK=${HOSTNAME##*-} train"], replicas=2),
            id="host name of pods of two Jobs",
        ),
        pytest.param(
            a_jobset(["sh", "-c", "RANK=$(hostname | awk -F- '{print $NF}') train"]),
            id="output of hostname",
        ),
        pytest.param(
            a_jobset(["sh", "-c", "h=$(hostname); RANK=${h##*-} train"]),
            id="output of hostname in a variable",
        ),
        pytest.param(
            a_jobset(["sh", "-c", "RANK=$(echo $HOSTNAME | cut -d- -f4) train"], replicas=2),
            id="host name of pods of two Jobs in a pipe",
        ),
    ],
)
def test_variable_of_kubernetes_without_a_value_here_is_refused_with_its_place(
    manifest: dict[str, Any],
) -> None:
    with pytest.raises(InvalidJob) as caught:
        convert(manifest, "us-central1")
    path = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].command["
    (problem,) = caught.value.problems
    assert problem.field.startswith(path)


def test_host_name_that_is_only_printed_is_no_problem() -> None:
    assert pool_variables(a_jobset(["sh", "-c", "echo $HOSTNAME $(hostname); train"], replicas=2))


def test_replicated_jobs_of_jobset_0_1_have_their_own_network() -> None:
    pod = {
        "containers": [
            {"image": IMAGE, "args": ["tcp://set-node-0-0.sub:1", "tcp://set-node-0-0.set:1"]}
        ]
    }
    job = {
        "name": "node",
        "network": {"subdomain": "sub"},
        "template": {"spec": {"template": {"spec": pod}}},
    }
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [job]},
    }
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    assert pools[0]["containerSpec"]["args"] == ["tcp://$(MASTER_ADDR):1"] * 2
