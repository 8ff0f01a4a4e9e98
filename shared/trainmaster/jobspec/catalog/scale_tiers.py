"""The scale tiers: predefined clusters of AI Platform Training, *the service*. A job names one in
`scaleTier`, or CUSTOM and its machines.

Source: the service's table of tiers; the numbers of replicas also from its notebooks extension and
logs of real jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.catalog.machine_types import Gpu


@dataclass(frozen=True, slots=True)
class TierRole:
    """The replicas of one role in a tier."""

    count: int
    machine_type: str
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """The roles of a scale tier. None: the tier does not have the role."""

    master: TierRole
    worker: TierRole | None = None
    parameter_server: TierRole | None = None


TIERS: Final = {
    "BASIC": Tier(master=TierRole(1, "n1-standard-4")),
    "STANDARD_1": Tier(
        # Documented as "many workers and a few parameter servers". The master has the same machine
        # as the workers.
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
    "BASIC_TPU": Tier(master=TierRole(1, "n1-standard-4"), worker=TierRole(1, "cloud_tpu")),
}
"""All tiers but CUSTOM, whose machines the job names."""
