"""The scale tiers: clusters with a name.

Source: the service's table of tiers; the counts also from its own notebooks extension and from real jobs' logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.jobspec.catalog.machine_types import Gpu


@dataclass(frozen=True, slots=True)
class TierRole:
    count: int
    machine_type: str
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    master: TierRole
    worker: TierRole | None = None
    parameter_server: TierRole | None = None


TIERS: Final = {
    "BASIC": Tier(master=TierRole(1, "n1-standard-4")),
    "STANDARD_1": Tier(
        # The documented "many workers and a few parameter servers"; the master is a machine like the workers.
        master=TierRole(1, "n1-highcpu-8"),
        worker=TierRole(4, "n1-highcpu-8"),
        parameter_server=TierRole(3, "n1-standard-4"),
    ),
    "PREMIUM_1": Tier(
        master=TierRole(1, "n1-highcpu-16"),
        worker=TierRole(19, "n1-highcpu-16"),
        parameter_server=TierRole(11, "n1-highmem-8"),
    ),
    "BASIC_GPU": Tier(master=TierRole(1, "n1-standard-8", Gpu("NVIDIA_TESLA_K80", 1))),
    # It was a master that drove a Cloud TPU beside it; today the program runs on the TPU's own host (`roles`).
    "BASIC_TPU": Tier(master=TierRole(1, "cloud_tpu")),
}
"""CUSTOM is what the job says."""
