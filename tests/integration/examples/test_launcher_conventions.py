"""Conventions of launchers that read TF_CONFIG themselves, such as Horovod's wrapper on AI Platform
Training.

Source: ai-platform-samples, training/horovod/base/horovod_wrapper.py, which checks them before it
starts its ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.jobs import a_job
from trainmaster.core.cluster.environment import environment
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.gcp.addresses import DnsAddresses
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.reading.parse_document import parse_document

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ZONE = "us-central1-a"


@dataclass(frozen=True)
class LauncherView:
    """The cluster, as such a launcher reads it from TF_CONFIG."""

    hosts: tuple[str, ...]
    """In the order of ranks."""
    port: int


def launcher_view(tf_config: str) -> LauncherView:
    """Parse TF_CONFIG with the checks of Horovod's wrapper."""
    cluster: Mapping[str, list[str]] = json.loads(tf_config)["cluster"]
    assert not set(cluster) - {"master", "chief", "worker"}, (
        "parameter servers take no part in an allreduce"
    )
    primary = cluster.get("master") or cluster.get("chief") or []
    assert len(primary) <= 1
    addresses = [address.split(":") for address in [*primary, *cluster.get("worker", [])]]
    assert all(len(address) == 2 for address in addresses), "host:port"
    (port,) = {int(port) for _, port in addresses}
    return LauncherView(tuple(host for host, _ in addresses), port)


def example(name: str) -> Job:
    path = EXAMPLES / name / "job.yaml"
    accepted = accept(parse_document(path.read_bytes(), path.name), default_job_id="gang_1")
    return a_job(plan=accepted.plan, job_id="gang_1", spec_json=accepted.spec_json)


def cluster_of(job: Job) -> Cluster:
    names = DnsAddresses("my-project")
    addresses = {
        replica_id: names.address(vm_name(job.job_id, replica_id), ZONE)
        for replica_id in job.plan.replica_ids
    }
    return Cluster(job, "my-project", addresses)


@pytest.mark.parametrize("name", ["digits", "pytorch_ddp", "xgboost_distributed"])
def test_tf_config_has_a_host_name_per_replica_and_one_port(name: str) -> None:
    job = example(name)
    views = {
        launcher_view(json.dumps(cluster_of(job).tf_config(group.task_type)))
        for group in job.plan.groups
    }
    (view,) = views
    assert view.port == 2222
    assert len(set(view.hosts)) == len(job.plan.replica_ids)
    assert view.hosts[0].startswith(vm_name(job.job_id, job.plan.primary))


def test_rank_variables_agree_with_tf_config() -> None:
    cluster = cluster_of(example("xgboost_distributed"))
    view = launcher_view(json.dumps(cluster.tf_config(TaskType.WORKER)))
    variables = environment(cluster, TaskType.WORKER, ZONE, ())
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == (view.hosts[0], str(view.port))
    assert variables["WORLD_SIZE"] == str(len(view.hosts))
    assert (variables["CLOUD_ML_JOB_ID"], cluster.rank_base(TaskType.WORKER)) == ("gang_1", 1)
