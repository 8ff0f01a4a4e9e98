"""Small manifests of a PyTorchJob and of a JobSet, which tests change in one place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

IMAGE: Final = "us-docker.pkg.dev/my-project/training/trainer:1"


def a_pytorch_job(**fields: object) -> dict[str, Any]:
    """Return a job of one master and two workers; `fields` go into its spec."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": IMAGE}]}}
    specs = {
        "Master": {"template": template},
        "Worker": {"replicas": 2, "template": copy.deepcopy(template)},
    }
    spec = {"pytorchReplicaSpecs": specs, **fields}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits"},
        "spec": spec,
    }


def pod_of(pytorch_job: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the spec of the pods of a role, `Master` or `Worker`, for changes."""
    pod: dict[str, Any] = pytorch_job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
    return pod


def a_jobset(
    words: Sequence[str], pods: int = 4, replicas: int = 1, **batch: object
) -> dict[str, Any]:
    """Return a JobSet of one replicated job, whose containers run the command `words`.

    `pods`: of each of the `replicas`. `batch`: more fields of the batch job's spec.
    """
    container = {
        "name": "train",
        "image": "us-docker.pkg.dev/p/t/train:1",
        "command": list(words),
        "resources": {"limits": {"cpu": "4", "memory": "16Gi"}},
    }
    template = {"spec": {"containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "template": template, **batch}
    job = {"name": "workers", "replicas": replicas, "template": {"spec": spec}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "digits"},
        "spec": {"replicatedJobs": [job]},
    }
