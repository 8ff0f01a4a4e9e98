"""The places in which a job may run, and the order in which they are tried.

    Where
     ├── zones                      one per candidate
     ├── candidates: Candidate      a zone of an alternative, and its rank among all of them
     └── options: Option            the alternatives of the job file (`trainmaster.placement`)

A job without alternatives has zones only.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.core.model.task_group import TaskGroup, Variable


@dataclass(frozen=True, slots=True)
class Option:
    """An alternative of `trainmaster.placement`: what its candidates have in place of the plan's
    own values.
    """

    groups: tuple[TaskGroup, ...]
    """The hardware of all roles, in the order of the plan's groups and with the same counts.

    Without programs.
    """
    environment: tuple[Variable, ...] = ()
    """Variables that replace those of the same name in every program."""
    after_s: int = 0
    """Its candidates are requested when the search for capacity has lasted this number of seconds.
    """


@dataclass(frozen=True, slots=True)
class Candidate:
    """One zone of one alternative. The zone is in `Where.zones`, at the same index."""

    option: int
    """Index into the plan's options."""
    rank: int
    """Likely candidates are requested in this order: by their place in the list (`ordered`), or by
    price (`anyOf`).
    """


@dataclass(frozen=True, slots=True)
class Where:
    """The places in which a job may run, and the order in which they are tried."""

    region: str
    zones: tuple[str, ...]
    """The zones in which the job may run.

    With `candidates`, the zone of each: one zone may be there several times.
    """
    zones_listed: bool = False
    """Whether the user has listed the zones: they are tried in this order, except those without
    capacity.
    """
    options: tuple[Option, ...] = ()
    """The alternatives; empty: the job has only the plan's own values."""
    cheapest_first: bool = False
    """Whether the candidates are ranked by price (`anyOf`), not as they are listed."""
    candidates: tuple[Candidate, ...] = ()
    """One per entry of `zones`, if there are options."""
    has_rounds: bool = False
    """Whether an alternative has several machines that train together: on all others, one slice
    also runs in rounds.
    """

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions in which the job may run."""
        return tuple(dict.fromkeys(zone.rpartition("-")[0] for zone in self.zones)) or (
            self.region,
        )
