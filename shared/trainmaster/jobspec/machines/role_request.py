"""The request of a job for each of its roles, in a form that both APIs share.

It is the input of the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.core.machines.tpus import TPU_VMS
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.catalog.machine_types import TPU_MACHINES, TPU_TYPES, TpuType
from trainmaster.jobspec.catalog.scale_tiers import TierRole
from trainmaster.jobspec.formats.ai_platform import DiskConfig
from trainmaster.jobspec.problems import FieldPath


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    """GPUs or a TPU that a job requests. None: the job does not name this part."""

    type: str | None
    count: int | None


@dataclass(frozen=True, slots=True)
class RolePaths:
    """Paths of the fields of a role, whether given or not."""

    machine: FieldPath
    count: FieldPath
    accelerator: FieldPath
    """The object with type and count, or the first of the two fields."""
    accelerator_type: FieldPath
    accelerator_count: FieldPath
    disk: FieldPath
    topology: FieldPath | None = None
    """None: the API has no such field, and `RoleRequest.topology` is None, too."""


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """The request for one role."""

    name: str
    """The service's name of the role: `master`, `workerPoolSpecs[1]`."""
    task_type: TaskType
    count: int
    """Number of replicas."""
    machine: str | None
    """Machine type as the job writes it."""
    paths: RolePaths
    accelerator: AcceleratorRequest | None = None
    """None: no accelerator."""
    topology: str | None = None
    disk: DiskConfig | None = None
    tier: TierRole | None = None
    """The role's machine in the scale tier, which then counts instead of `machine`."""

    tpu_types: Mapping[str, TpuType] = field(default_factory=lambda: TPU_TYPES)
    """The table of the job's format."""

    @property
    def machine_type(self) -> str:
        """The tier's machine type, else that of the job; empty: none is given."""
        return (self.tier.machine_type if self.tier else self.machine) or ""

    @property
    def is_tpu(self) -> bool:
        return self.machine_type in TPU_MACHINES or self.machine_type in TPU_VMS


def request_accelerator(
    accelerator_type: str | None, count: int | None
) -> AcceleratorRequest | None:
    """Return the request; None if both fields are absent or zero.

    Source: tensorflow_cloud sends them so for no accelerator.
    """
    if accelerator_type is None and count is None:
        return None
    return AcceleratorRequest(accelerator_type, count)
