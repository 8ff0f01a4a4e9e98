"""The variables with which torchrun finds its peers: PET_… and, for elastic jobs, PET_RDZV_….

The `Level` of the elastic policy lists its fields: those that are read; those that have no effect
here (`dropped`, with the reason); and those that no job can have (`refused`, with what to do).

Source: training-operator v1.9.0, pkg/controller.v1/pytorch; kubeflow/trainer,
pkg/runtime/framework/plugins/torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trainmaster.jobspec.manifests.findings import Findings, Level

MASTER = "$(MASTER_ADDR)"
MASTER_PORT = "$(MASTER_PORT)"
NODES = "$(WORLD_SIZE)"
"""Number of replicas that start together: fewer while the job goes on without some of them."""


OF_ONE_POD = {name: f"$({name})" for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
"""The operator sets them in each pod. A job of one pod has to ask for them."""


class ElasticPolicy(Level):
    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str | None = None
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: tuple[Mapping[str, Any], ...] = ()
    max_restarts: int | None = None
    n_proc_per_node: int | None = None

    dropped: ClassVar[Mapping[str, str]] = {"rdzvPort": "The rendezvous uses MASTER_PORT."}
    refused: ClassVar[Mapping[str, str]] = {
        "standalone": "set it for jobs of one pod in the command: torchrun --standalone",
        "metrics": "jobs go on with fewer workers only while machines are missing",
    }


def torch_variables(
    pods: int, nproc: str | int | None, path: str, findings: Findings
) -> dict[str, str]:
    """Return the variables of every pod.

    `nproc`: processes per node: a number, auto, cpu or gpu.
    """
    per_node = "auto" if nproc is None else str(nproc)
    if per_node not in ("auto", "cpu", "gpu", "1") and not per_node.isdecimal():
        findings.refuse(path, f"is {per_node}, which is not known", "auto, cpu, gpu or a number")
    elif per_node.isdecimal() and int(per_node) > 1:
        total = pods * int(per_node)
        reason = (
            "Before torchrun sets it, WORLD_SIZE counts the replicas; torchrun's processes get"
            " their own number."
        )
        findings.substitute(path, f"WORLD_SIZE={total}", f"WORLD_SIZE={pods}", reason)
    return {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": per_node,
        "PET_NNODES": NODES,
        "PET_NODE_RANK": "$(RANK)",
        "PET_MASTER_ADDR": MASTER,
        "PET_MASTER_PORT": MASTER_PORT,
    }


def elastic_variables(
    policy: ElasticPolicy, job_name: str, workers: int, findings: Findings
) -> dict[str, str]:
    """Return the variables of an elastic job, which restarts when its number of replicas changes.

    A policy that allows more workers than the job has is refused.
    """
    path = "spec.elasticPolicy"
    least = workers if policy.min_replicas is None else policy.min_replicas
    most = workers if policy.max_replicas is None else policy.max_replicas
    if most != workers or not 1 <= least <= workers:
        problem = (
            f"allows {least} to {most} workers, and Worker.replicas is {workers}, the most that a"
            " job can have"
        )
        findings.refuse(
            path, problem, f"minReplicas: {min(max(least, 1), workers)}, maxReplicas: {workers}"
        )
    if policy.rdzv_backend not in (None, "c10d"):
        findings.refuse(
            f"{path}.rdzvBackend", f"is {policy.rdzv_backend}; jobs have no etcd", "c10d"
        )
    if policy.rdzv_host is not None:
        findings.drop(
            f"{path}.rdzvHost", policy.rdzv_host, "The rendezvous is at the primary, MASTER_ADDR."
        )
    variables = {
        "PET_NNODES": f"{NODES}:{NODES}",
        "PET_RDZV_ENDPOINT": f"{MASTER}:{MASTER_PORT}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": policy.rdzv_id or job_name,
    }
    if policy.rdzv_conf:
        variables["PET_RDZV_CONF"] = ",".join(
            f"{item.get('key')}={item.get('value')}" for item in policy.rdzv_conf
        )
    if policy.max_restarts is not None:
        variables["PET_MAX_RESTARTS"] = str(policy.max_restarts)
    if policy.n_proc_per_node is not None:
        variables["PET_NPROC_PER_NODE"] = str(policy.n_proc_per_node)
    return variables
