"""What a bulk insert asks for: names, machines, disks, network, fuse.

docs/interfaces.md sections 3 and 4 say what the labels and metadata mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.cloud import compute_v1

from shared.core.fleet import Create, job_label
from shared.core.jobs import Accelerator, Job, Plan, TaskGroup

LABEL_JOB: Final = "trainmaster-job"
LABEL_TASK: Final = "trainmaster-task"
LABEL_ATTEMPT: Final = "trainmaster-attempt"
LABEL_MACHINE: Final = "trainmaster-machine"

FUSE_SLACK_S: Final = 3600
"""Between the latest moment a job may still run and the fuse of its VMs: no healthy VM is ever near it."""
FUSE_S_MIN: Final = 30
FUSE_S_MAX: Final = 120 * 24 * 3600
"""Limits of maxRunDuration. Source: https://cloud.google.com/compute/docs/instances/limit-vm-runtime."""
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all VMs of an installation. An empty `service_account` gives them none; `network` and
    `subnetwork` are partial or full URLs."""

    service_account: str
    network: str
    subnetwork: str


def resource(
    job: Job, create: Create, site: Site, metadata: Mapping[str, str]
) -> compute_v1.BulkInsertInstanceResource:
    """All or nothing: `min_count` is the count."""
    named = {name: compute_v1.BulkInsertInstanceResourcePerInstanceProperties(name=name) for name in create.names}
    return compute_v1.BulkInsertInstanceResource(
        count=len(create.names),
        min_count=len(create.names),
        per_instance_properties=named,
        instance_properties=_properties(job.plan, create, site, _labels(job, create), metadata),
    )


def _properties(
    plan: Plan, create: Create, site: Site, labels: Mapping[str, str], metadata: Mapping[str, str]
) -> compute_v1.InstanceProperties:
    """Types go by name here, not by URL: these properties belong to no zone. Source: InstanceProperties."""
    properties = compute_v1.InstanceProperties(
        machine_type=create.group.machine_type,
        labels=labels,
        metadata=compute_v1.Metadata(items=items(metadata)),
        disks=[_boot_disk(create.group, plan.image)],
        network_interfaces=[_network_interface(plan, site)],
        scheduling=_scheduling(plan),
        shielded_instance_config=_shielded(create.group),
    )
    if email := plan.service_account or site.service_account:
        properties.service_accounts = [compute_v1.ServiceAccount(email=email, scopes=[SCOPE])]
    if create.group.accelerator is not None:
        properties.guest_accelerators = [_accelerator(create.group.accelerator)]
    return properties


def _network_interface(plan: Plan, site: Site) -> compute_v1.NetworkInterface:
    """No access configuration: no external address. A job's own network brings its own subnetworks."""
    if plan.network:
        return compute_v1.NetworkInterface(network=plan.network)
    if site.subnetwork:
        return compute_v1.NetworkInterface(network=site.network, subnetwork=site.subnetwork)
    return compute_v1.NetworkInterface(network=site.network)


def items(metadata: Mapping[str, str]) -> list[compute_v1.Items]:
    return [compute_v1.Items(key=key, value=value) for key, value in metadata.items()]


def _labels(job: Job, create: Create) -> dict[str, str]:
    """docs/interfaces.md section 4; attempt and machine as of the VM's creation."""
    return {
        LABEL_JOB: job_label(job.job_id),
        LABEL_TASK: create.group.task_type.value,
        LABEL_ATTEMPT: str(create.directive.attempt),
        LABEL_MACHINE: str(create.machine),
    }


def _boot_disk(group: TaskGroup, image: str) -> compute_v1.AttachedDisk:
    parameters = compute_v1.AttachedDiskInitializeParams(
        source_image=image, disk_size_gb=group.boot_disk_gib, disk_type=group.boot_disk_type
    )
    return compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=parameters)


def _accelerator(accelerator: Accelerator) -> compute_v1.AcceleratorConfig:
    return compute_v1.AcceleratorConfig(accelerator_type=accelerator.type, accelerator_count=accelerator.count)


def _scheduling(plan: Plan) -> compute_v1.Scheduling:
    """Maintenance ends a VM (with GPUs it must), and nothing but this control plane starts one again."""
    fuse_s = plan.max_running_s + (plan.max_wait_s or 0) + FUSE_SLACK_S
    return compute_v1.Scheduling(
        on_host_maintenance="TERMINATE",
        automatic_restart=False,
        provisioning_model="STANDARD",
        max_run_duration=compute_v1.Duration(seconds=min(max(fuse_s, FUSE_S_MIN), FUSE_S_MAX)),
        instance_termination_action="DELETE",
    )


def _shielded(group: TaskGroup) -> compute_v1.ShieldedInstanceConfig:
    """Secure Boot refuses the NVIDIA drivers that images build for themselves, so VMs with GPUs go without.
    Source: https://cloud.google.com/compute/docs/gpus/install-drivers-gpu#secure-boot."""
    has_gpu = group.accelerator is not None or group.machine_type.startswith(("a2-", "a3-", "a4-", "g2-", "g4-"))
    return compute_v1.ShieldedInstanceConfig(
        enable_secure_boot=not has_gpu, enable_vtpm=True, enable_integrity_monitoring=True
    )
