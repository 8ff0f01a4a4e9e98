"""Machine types and TPU slices for the resources and node selectors of a manifest's pods."""

from __future__ import annotations

import pytest

from tests.unit.jobspec.manifests.documents import IMAGE, a_jobset, a_pytorch_job
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.manifests.convert import convert
from trainmaster.jobspec.problems import InvalidJob


def test_type_of_tpu_that_is_not_known_is_named() -> None:
    manifest = a_jobset(["python", "train.py"])
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {"google.com/tpu": 4}}
    pod["nodeSelector"] = {
        "cloud.google.com/gke-tpu-accelerator": "tpu7x",
        "cloud.google.com/gke-tpu-topology": "2x2x2",
    }
    with pytest.raises(InvalidJob) as caught:
        convert(manifest, "us-central1")
    assert [problem.problem for problem in caught.value.problems] == [
        "is tpu7x, a type of TPU that jobs cannot have"
    ]


def test_topology_on_two_hosts_of_gke_runs_on_the_one_host_of_cloud_tpu() -> None:
    pod = {
        "containers": [{"image": IMAGE, "resources": {"limits": {"google.com/tpu": 4}}}],
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
            "cloud.google.com/gke-tpu-topology": "2x4",
        },
    }
    job = {"name": "node", "template": {"spec": {"parallelism": 2, "template": {"spec": pod}}}}
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [job]},
    }
    plan = accept(convert(manifest, "us-west4"), default_job_id=None).plan
    assert [(group.count, group.tpu and group.tpu.type, group.hosts) for group in plan.groups] == [
        (1, "v5litepod-8", 1)
    ]
    assert "ct5lp-hightpu-8t" in [item.replacement for item in plan.origin.substitutions]


@pytest.mark.parametrize(
    ("resources", "selector", "machine"),
    [
        ({}, {}, "n1-standard-4"),
        ({"cpu": "500m", "memory": "16Gi"}, {}, "n1-highmem-4"),
        ({"cpu": 17}, {}, "n1-highcpu-32"),
        (
            {"nvidia.com/gpu": 8},
            {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
            "a3-highgpu-8g",
        ),
        (
            {"nvidia.com/gpu": 1, "memory": "100G"},
            {"cloud.google.com/gke-accelerator": "nvidia-l4"},
            "g2-standard-32",
        ),
        (
            {"nvidia.com/gpu": 1},
            {"node.kubernetes.io/instance-type": "g2-standard-12"},
            "g2-standard-12",
        ),
        ({"cpu": 8}, {"node.kubernetes.io/instance-type": "c3-standard-8"}, "c3-standard-8"),
    ],
)
def test_smallest_machine_for_resources_is_selected(
    resources: dict[str, object], selector: dict[str, str], machine: str
) -> None:
    manifest = a_pytorch_job()
    for role in manifest["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["nodeSelector"] = selector
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": resources}
    manifest["metadata"]["annotations"] = {"trainmaster": "spot: all"}
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    assert pools[0]["machineSpec"]["machineType"] == machine


@pytest.mark.parametrize(
    ("resources", "field", "example"),
    [
        ({"limits": {"cpu": "4k", "memory": "16gb"}}, "limits.memory", "16Gi"),
        ({"limits": {"memory": "32 GB"}}, "limits.memory", "32Gi"),
        ({"requests": {"memory": "512mib"}}, "requests.memory", "512Mi"),
        ({"requests": {"cpu": "four"}}, "requests.cpu", "4"),
        ({"limits": {"nvidia.com/gpu": "one"}}, "limits.nvidia.com/gpu", "4"),
        ({"requests": {"cpu": "16gb"}}, "requests.cpu", "4"),
        ({"limits": {"ephemeral-storage": "1 terabyte"}}, "limits.ephemeral-storage", "16Gi"),
    ],
)
def test_wrong_quantity_is_one_problem_at_the_field_that_has_it(
    resources: dict[str, dict[str, str]], field: str, example: str
) -> None:
    document = a_pytorch_job()
    for spec in document["spec"]["pytorchReplicaSpecs"].values():
        spec["template"]["spec"]["containers"][0]["resources"] = resources
    with pytest.raises(InvalidJob) as raised:
        convert(document, "us-central1")
    for problem in raised.value.problems:
        assert problem.field.endswith(f".resources.{field}")
        assert "is not a quantity" in problem.problem
        assert problem.example == example
