"""What launchers by hostname rely on that read TF_CONFIG themselves, as Horovod's wrapper on AI Platform Training did.

Source: ai-platform-samples, training/horovod/base/horovod_wrapper.py: what it checks before it starts its ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.core.cluster.environment import environment
from shared.core.cluster.tf_config import Cluster
from shared.core.model.job import Job
from shared.core.model.replica_id import TaskType
from shared.core.reconcile.plan import vm_name
from shared.gcp.addresses import DnsAddresses
from shared.jobspec import accept, parse_document
from tests.support.jobs import a_job

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ZONE = "us-central1-a"


@dataclass(frozen=True)
class Gang:
    """As such a launcher sees it. `hosts` by rank."""

    hosts: tuple[str, ...]
    port: int


def gang_of(tf_config: str) -> Gang:
    """Refuses what the wrapper refuses."""
    cluster: Mapping[str, list[str]] = json.loads(tf_config)["cluster"]
    assert not set(cluster) - {"master", "chief", "worker"}, "parameter servers take no part in an allreduce"
    primary = cluster.get("master") or cluster.get("chief") or []
    assert len(primary) <= 1
    addresses = [address.split(":") for address in [*primary, *cluster.get("worker", [])]]
    assert all(len(address) == 2 for address in addresses), "host:port"
    (port,) = {int(port) for _, port in addresses}
    return Gang(tuple(host for host, _ in addresses), port)


def example(name: str) -> Job:
    path = EXAMPLES / name / "job.yaml"
    accepted = accept(parse_document(path.read_bytes(), path.name), default_job_id="gang_1")
    return a_job(plan=accepted.plan, job_id="gang_1", spec_json=accepted.spec_json)


def cluster_of(job: Job) -> Cluster:
    names = DnsAddresses("my-project")
    addresses = {
        replica_id: names.address(vm_name(job.job_id, replica_id), ZONE) for replica_id in job.plan.replica_ids
    }
    return Cluster(job, "my-project", addresses)


@pytest.mark.parametrize("name", ["digits", "pytorch_ddp", "xgboost_distributed"])
def test_every_replica_is_a_host_by_name_and_all_have_one_port(name: str) -> None:
    job = example(name)
    seen = {gang_of(json.dumps(cluster_of(job).tf_config(group.task_type))) for group in job.plan.groups}
    (gang,) = seen
    assert gang.port == 2222
    assert len(set(gang.hosts)) == len(job.plan.replica_ids)
    assert gang.hosts[0].startswith(vm_name(job.job_id, job.plan.primary))


def test_what_the_ranks_are_told_agrees_with_tf_config() -> None:
    cluster = cluster_of(example("xgboost_distributed"))
    gang = gang_of(json.dumps(cluster.tf_config(TaskType.WORKER)))
    told = environment(cluster, TaskType.WORKER, ZONE, ())
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == (gang.hosts[0], str(gang.port))
    assert told["WORLD_SIZE"] == str(len(gang.hosts))
    assert (told["CLOUD_ML_JOB_ID"], cluster.rank_base(TaskType.WORKER)) == ("gang_1", 1)
