"""The input of the simulation, and the calls that it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    jobs: int
    replicas: int
    """Number of replicas of each job."""
    regions: int = 1
    """Number of regions of the jobs. Compute Engine's limits are per region, but all regions share the functions."""
    changes_per_minute: int = 1500
    """Compute Engine's default quota of changes per region. Source: its documentation, "API rate limits"."""
    excluded_free: int = 10_000
    """VMs of a region that the filter of a list may exclude without a charge."""
    excluded_per_minute: int = 750_000
    """VMs of a region that the filters of all lists together may exclude: a fixed limit. Source: as above."""
    seed: int = 1


@dataclass(slots=True)
class Usage:
    """The calls of the installation, by minute of virtual time."""

    counts: dict[str, Counter[int]] = field(default_factory=dict)
    deliveries_max_s: float = 0.0
    refused: int = 0
    """Changes that Compute Engine refused for the whole time in which the client repeats them."""
    refused_lists: int = 0
    """Lists that it refused for the whole time, because filters had excluded too many VMs in that minute."""
    running_s: list[float] = field(default_factory=list)
    """Per job: from its submission until it runs."""
    deleted_s: list[float] = field(default_factory=list)
    """Per VM: from the exit of its program until it is deleted."""

    def add(self, name: str, at: float, number: int = 1) -> None:
        self.counts.setdefault(name, Counter())[int(at // MINUTE)] += number

    def total(self, name: str) -> int:
        return self.counts.get(name, Counter()).total()

    def peak_per_minute(self, name: str) -> int:
        return max(self.counts.get(name, Counter({0: 0})).values())
