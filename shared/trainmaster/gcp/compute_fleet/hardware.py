"""The hardware of a VM: boot disk, GPUs, and what Compute Engine does at maintenance, preemption
and the time limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.cloud import compute_v1

from trainmaster.core.machines.machine_types import family_of
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.reconcile.machine_families import (
    boot_disk_type,
    has_gpus,
    supports_live_migration,
)
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.compute_fleet.purchase_requests import PurchaseRequest

FUSE_S_MAX: Final = 120 * 24 * 3600
"""Longest maxRunDuration.

Source: https://cloud.google.com/compute/docs/instances/limit-vm-runtime.
"""
DRIVER_KEY: Final = "install-nvidia-driver"
_DEEP_LEARNING: Final = "projects/deeplearning-platform-release/"
_GOOGLE_IMAGES: Final = (_DEEP_LEARNING, "projects/debian-cloud/", "projects/ubuntu-os-cloud/")
_WITH_DRIVER: Final = "-nvidia-"
"""Part of the names of Deep Learning VM images that contain the driver.

Source: list of Deep Learning VM images.
"""


def boot_disk(plan: Plan, group: TaskGroup, images: Mapping[str, str]) -> compute_v1.AttachedDisk:
    """Return the boot disk.

    `images`: the installation's own, by the family of Google's image that each replaces.
    """
    image = plan.image.source
    google_family = image.rpartition("/")[2] if image.startswith(_GOOGLE_IMAGES) else ""
    parameters = compute_v1.AttachedDiskInitializeParams(
        source_image=images.get(google_family, image),
        disk_size_gb=group.boot_disk_gib,
        disk_type=boot_disk_type(group.machine_type, group.boot_disk_type),
    )
    disk = compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=parameters)
    key = plan.access.kms_key
    if key:
        disk.disk_encryption_key = compute_v1.CustomerEncryptionKey(kms_key_name=key)
    return disk


def accelerators(group: TaskGroup) -> list[compute_v1.AcceleratorConfig]:
    """Return the GPUs to attach. Machine types other than n1 have theirs built in."""
    gpu = group.accelerator
    if gpu is None or not family_of(group.machine_type).attaches_gpus:
        return []
    return [compute_v1.AcceleratorConfig(accelerator_type=gpu.type, accelerator_count=gpu.count)]


def driver_metadata(plan: Plan, group: TaskGroup) -> dict[str, str]:
    """Return the metadata that makes a Deep Learning VM image without a driver install one at the
    first boot; else none.
    """
    image = plan.image.source
    lacks_driver = image.startswith(_DEEP_LEARNING) and _WITH_DRIVER not in image
    return {DRIVER_KEY: "True"} if has_gpus(group) and lacks_driver else {}


def scheduling(plan: Plan, create: Create, purchase: PurchaseRequest) -> compute_v1.Scheduling:
    """Return the scheduling options of the VMs.

    Maintenance migrates VMs that can be migrated, and terminates the others. Only Trainmaster
    restarts a VM.
    """
    migrates = supports_live_migration(create.group, create.price)
    request = compute_v1.Scheduling(
        on_host_maintenance="MIGRATE" if migrates else "TERMINATE",
        automatic_restart=False,
        provisioning_model=purchase.provisioning_model,
        max_run_duration=compute_v1.Duration(seconds=min(plan.fuse_s, FUSE_S_MAX)),
        instance_termination_action="DELETE",
    )
    if purchase.notice_s is not None:
        request.preemption_notice_duration = compute_v1.Duration(seconds=purchase.notice_s)
    return request


def shielded_options(plan: Plan, group: TaskGroup) -> compute_v1.ShieldedInstanceConfig | None:
    """Return the options of a Shielded VM; None for an image that is not Google's.

    Secure Boot rejects NVIDIA drivers that an image builds itself, so VMs with GPUs do not use it.
    Source: https://cloud.google.com/compute/docs/gpus/install-drivers-gpu#secure-boot.

    Compute Engine refuses options that an image does not support. Without options, it uses those
    that the image supports.
    """
    if not plan.image.source.startswith(_GOOGLE_IMAGES):
        return None
    return compute_v1.ShieldedInstanceConfig(
        enable_secure_boot=not has_gpus(group), enable_vtpm=True, enable_integrity_monitoring=True
    )
