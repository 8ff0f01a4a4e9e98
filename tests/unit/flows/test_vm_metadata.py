"""The metadata of new VMs: its size, and what the agent makes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress

import pytest

from tests.support.jobs import a_job, a_plan, a_spec
from trainmaster.agent.model.vm_config import AgentIdentity, VmConfig, VmRef
from trainmaster.agent.program.environment import RANK_VARIABLES, environment_of
from trainmaster.core.cluster.environment import environment
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.job import Job
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup, Tpu
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows.provisioning.vm_metadata import vm_metadata
from trainmaster.gcp.addresses import DnsAddresses
from trainmaster.jobspec.accept import SPEC_BYTES_MAX, AcceptedSpec, accept
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster.wiring.fleet import agent_files

PROJECT = "a-project-id-of-30-characters-"
ZONE = "us-central1-a"
SMALL_BYTES = 16 * 1024
VALUE_BYTES_MAX = 256 * 1024
"""Source: Compute Engine's limit on one metadata value."""
AGENT_FILES = agent_files(f"gs://{PROJECT}-trainmaster-stage/{agent_object(agent_archive())}")


def a_create(job: Job, task_type: TaskType) -> Create:
    replica_ids = tuple(
        replica_id for replica_id in job.plan.replica_ids if replica_id.task_type is task_type
    )
    names = tuple(vm_name(job.job_id, replica_id) for replica_id in replica_ids)
    directive = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)
    return Create(
        job.plan.group(task_type),
        ZONE,
        vm_generation=1,
        directive=directive,
        replica_ids=replica_ids,
        names=names,
        round=0,
    )


def metadata_of(job: Job, task_type: TaskType = TaskType.WORKER) -> dict[str, str]:
    return vm_metadata(job, a_create(job, task_type), PROJECT, DnsAddresses(PROJECT), AGENT_FILES)


def size(metadata: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("replicas", [1, 10, 1000])
def test_metadata_of_a_vm_is_below_16_kib_whatever_the_number_of_replicas(
    replicas: int, dialect: Dialect
) -> None:
    job = a_job(job_id="j" * 128, plan=a_plan(workers=replicas - 1, dialect=dialect))
    metadata = metadata_of(job, job.plan.groups[-1].task_type)
    print(replicas, size(metadata), {key: len(value) for key, value in metadata.items()})
    assert size(metadata) < SMALL_BYTES


def test_metadata_carries_the_address_and_the_hash_of_the_agent_only() -> None:
    digest = hashlib.sha256(agent_archive()).hexdigest()
    assert (
        metadata_of(a_job())["trainmaster-agent"]
        == f"gs://{PROJECT}-trainmaster-stage/agent/{digest}.zip"
    )


def test_stall_timeout_is_for_every_role_but_parameter_servers() -> None:
    """Parameter servers print nothing."""
    groups = tuple(
        TaskGroup(task_type, 1, "n1-standard-4")
        for task_type in TaskType
        if task_type is not TaskType.MASTER
    )
    job = a_job(plan=a_plan(groups=groups, stall_timeout_s=600))
    configs = {
        group.task_type: VmConfig.parse(metadata_of(job, group.task_type)["trainmaster-vm-config"])
        for group in groups
    }
    assert {
        task_type for task_type, config in configs.items() if config.stall_timeout_s is None
    } == {TaskType.PS}
    assert configs[TaskType.CHIEF].stall_timeout_s == 600


def largest_accepted(text: str) -> AcceptedSpec:
    """Return the job with the longest argument of this text that is not refused."""
    for count in range(SPEC_BYTES_MAX // len(text.encode()), 0, -256):
        with suppress(InvalidJob):
            return accept({"jobId": "digits_1", **a_spec(args=[text * count])}, default_job_id=None)
    raise AssertionError("every size is refused")


@pytest.mark.parametrize("text", ['"', "é", "\x01"], ids=["quote", "accent", "control character"])
def test_largest_spec_that_is_accepted_fits_metadata(text: str) -> None:
    """The job's own arguments are in the metadata twice: in its description, and as arguments of
    the program.
    """
    accepted = largest_accepted(text)
    job = a_job(job_id="digits_1", plan=accepted.plan, spec_json=accepted.spec_json)
    metadata = metadata_of(job, job.plan.groups[-1].task_type)
    assert max(len(value.encode()) for value in metadata.values()) < VALUE_BYTES_MAX
    assert size(metadata) < 2 * VALUE_BYTES_MAX


def test_project_wide_ssh_keys_open_no_training_vm() -> None:
    """The attack: anyone with a key in the project's metadata logs in to a VM and uses
    its account.
    """
    assert metadata_of(a_job())["block-project-ssh-keys"] == "TRUE"


def job_of_slices() -> Job:
    tpu = Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
    return a_job(
        plan=a_plan(
            groups=(
                TaskGroup(TaskType.CHIEF, 1, machine_type="", tpu=tpu),
                TaskGroup(TaskType.WORKER, 12, machine_type="", tpu=tpu),
            )
        )
    )


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(a_job(plan=a_plan(workers=999)), id="1000 replicas"),
        pytest.param(a_job(plan=a_plan(workers=0)), id="alone"),
        pytest.param(a_job(plan=a_plan(workers=2)), id="three"),
        pytest.param(a_job(plan=a_plan(workers=150, dialect=Dialect.VERTEX)), id="Vertex AI"),
        pytest.param(job_of_slices(), id="slices"),
    ],
)
def test_program_gets_the_environment_that_the_core_describes(job: Job) -> None:
    """The agent adds the task index to what `Cluster` says about the role."""
    book = DnsAddresses(PROJECT)
    addresses = {rid: book.address(vm_name(job.job_id, rid), ZONE) for rid in job.plan.replica_ids}
    cluster = Cluster(job, PROJECT, addresses)
    for group in job.plan.groups:
        create = a_create(job, group.task_type)
        config = VmConfig.parse(metadata_of(job, group.task_type)["trainmaster-vm-config"])
        vm = VmRef(create.names[-1], ZONE, "4711")
        variables = environment_of(AgentIdentity(vm, config, vm), {})
        index = group.count - 1
        tf_config = dict(cluster.tf_config(group.task_type))
        cluster_spec = dict(cluster.cluster_spec(group.task_type))
        for spec in (tf_config, cluster_spec):
            assert isinstance(spec["task"], dict)
            spec["task"] = {**spec["task"], "index": index}
        assert json.loads(variables["TF_CONFIG"]) == tf_config
        assert json.loads(variables["CLUSTER_SPEC"]) == cluster_spec
        expected = environment(cluster, group.task_type, ZONE, create.names)
        if cluster.world_size() == 1:
            expected = {
                name: value for name, value in expected.items() if name not in RANK_VARIABLES
            }
        assert {name: variables[name] for name in expected} == expected


def test_only_vms_with_gpus_get_the_packages_for_gpus() -> None:
    groups = (
        TaskGroup(TaskType.CHIEF, 1, "n1-standard-8", Accelerator("nvidia-tesla-t4", 1)),
        TaskGroup(TaskType.WORKER, 1, "g2-standard-4", Accelerator("nvidia-l4", 1)),
        TaskGroup(TaskType.PS, 1, "n1-standard-4"),
    )
    job = a_job(
        plan=a_plan(
            groups=groups,
            packages=("tensorflow==2.21.*",),
            gpu_packages=("tensorflow[and-cuda]==2.21.*",),
        )
    )
    packages = {
        group.task_type: json.loads(metadata_of(job, group.task_type)["trainmaster-vm-config"])[
            "packages"
        ]
        for group in groups
    }

    assert packages == {
        TaskType.CHIEF: ["tensorflow[and-cuda]==2.21.*"],
        TaskType.WORKER: ["tensorflow[and-cuda]==2.21.*"],
        TaskType.PS: ["tensorflow==2.21.*"],
    }
