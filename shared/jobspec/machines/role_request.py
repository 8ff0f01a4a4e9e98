"""What a job asks for each of its roles, in neither API's words: what `equipment` and `slices` work on."""

from __future__ import annotations

from dataclasses import dataclass

from shared.core.model.replica_id import TaskType
from shared.jobspec.catalog.scale_tiers import TierRole
from shared.jobspec.catalog.tpu_types import TPU_MACHINES, TPU_VMS
from shared.jobspec.formats.ai_platform import DiskConfig
from shared.jobspec.reading.problems import Loc


@dataclass(frozen=True, slots=True)
class Chips:
    """GPUs or a TPU, as far as the job names them."""

    type: str | None
    count: int | None


@dataclass(frozen=True, slots=True)
class Places:
    """Where in the document a role's values stand, or would. `chips` is what holds type and count, or their head."""

    machine: Loc
    count: Loc
    chips: Loc
    chips_type: Loc
    chips_count: Loc
    disk: Loc
    topology: Loc | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """`name`: the service's own (`master`, `workerPoolSpecs[1]`). `chips` is None where it says "no accelerator"."""

    name: str
    task_type: TaskType
    count: int
    machine: str | None
    at: Places
    chips: Chips | None = None
    topology: str | None = None
    disk: DiskConfig | None = None
    tier: TierRole | None = None

    @property
    def is_tpu(self) -> bool:
        machine = self.tier.machine_type if self.tier else self.machine
        return machine in TPU_MACHINES or machine in TPU_VMS


def chips_of(kind: str | None, count: int | None) -> Chips | None:
    """None where both are absent or zero, as tensorflow_cloud sends "no accelerator"."""
    return Chips(kind, count) if kind is not None or count is not None else None
