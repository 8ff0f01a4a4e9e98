"""Find machines that a role cannot obtain or use, before a VM is requested.

The checks cover the driver and the size of the boot image, and what Compute Engine sells. Without
them a job is accepted and fails later: Compute Engine refuses its VMs, or the driver ignores its
GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.machine_types import family_of
from trainmaster.core.model.purchase import OnDemand, Reserved
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.jobspec.catalog.machine_types import LEGACY_MACHINES
from trainmaster.jobspec.catalog.runtimes import DEEP_LEARNING_IMAGES
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.field_names import EXTENSION

DEEP_LEARNING_GIB_MIN: Final = 50
"""Size of the Deep Learning VM images.

Source: "Create a Deep Learning VM instance", boot disk size.
"""
_IMAGE: Final = (EXTENSION, "image")


@dataclass(frozen=True, slots=True)
class Request:
    """The boot image of a job's VMs, and where the job requests them."""

    image: str
    """Boot image."""
    is_own_image: bool
    """Whether the job names the image; it then has the driver that the job needs."""
    path: FieldPath = (EXTENSION,)
    """Path of the object that requests this: `trainmaster`, or one of its alternatives."""


def check_machines(
    roles: Sequence[RoleRequest], groups: Sequence[TaskGroup], request: Request, problems: Problems
) -> None:
    """Refuse roles whose machine cannot be obtained, or whose GPUs would have no driver."""
    by_type = {group.task_type: group for group in groups}
    for role in roles:
        group = by_type.get(role.task_type)
        if group is None or group.tpu is not None:
            continue
        if not request.is_own_image:
            _check_driver(role, group, problems)
        _check_offer(role, group, request, problems)


def with_disks_for_image(
    roles: Sequence[RoleRequest], groups: Sequence[TaskGroup], image: str, problems: Problems
) -> tuple[TaskGroup, ...]:
    """Enlarge boot disks that are smaller than the image."""
    if not image.startswith(DEEP_LEARNING_IMAGES):
        return tuple(groups)
    paths = {role.task_type: role.paths for role in roles}
    enlarged = []
    for group in groups:
        if group.tpu is not None or group.boot_disk_gib >= DEEP_LEARNING_GIB_MIN:
            enlarged.append(group)
            continue
        enlarged.append(replace(group, boot_disk_gib=DEEP_LEARNING_GIB_MIN))
        field = (*paths[group.task_type].disk, "bootDiskSizeGb")
        reason = (
            f"The boot image has {DEEP_LEARNING_GIB_MIN} GB, and a disk cannot be smaller than"
            " its image."
        )
        requested = f"{group.boot_disk_gib} GB"
        problems.substitute(field, requested, f"{DEEP_LEARNING_GIB_MIN} GB", reason)
    return tuple(enlarged)


def _check_driver(role: RoleRequest, group: TaskGroup, problems: Problems) -> None:
    gpu = group.accelerator
    if gpu is None or GPUS[gpu.type].has_driver:
        return
    image = problems.spelled_path(_IMAGE)
    name = gpu.type.upper().replace("-", "_")
    problem = (
        f"selects the GPU {name}, which the driver of the default images does not support: use"
        f" NVIDIA_TESLA_T4 or a machine type with newer GPUs (g2, a2), or set {image} to an image"
        " with NVIDIA's proprietary driver"
    )
    if role.machine in LEGACY_MACHINES:
        problems.add(role.paths.machine, problem, example=f"a2-highgpu-{gpu.count}g")
    else:
        problems.add(role.paths.accelerator_type, problem, example="NVIDIA_TESLA_T4")


def _check_offer(role: RoleRequest, group: TaskGroup, request: Request, problems: Problems) -> None:
    machine = group.machine_type
    sales = family_of(machine).sales
    prices = group.purchase.prices
    if all(isinstance(price, sales) for price in prices) or OnDemand in sales:
        return
    if len(prices) > 1:
        problem = f"cannot be used with {machine}, which Compute Engine does not sell on demand"
        problems.add_text((*request.path, "spot", "onDemandAfter"), problem, advice="leave it out")
    else:
        sold = " and ".join(price.sold for price in sales)
        problem = f"cannot be {machine} on demand: Compute Engine sells it {sold} only"
        instead = f"{problems.spelled_path((*request.path, 'spot'))}: all"
        if Reserved in sales:
            instead += f", or {problems.spelled_path((*request.path, 'reservation'))}: NAME"
        problems.add_text(role.paths.machine, problem, advice=instead)
