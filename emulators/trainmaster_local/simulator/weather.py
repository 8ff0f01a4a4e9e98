"""Seeded weather of capacity: when zones have room for VMs, as a mix of processes that several
zones share. The Compute emulator has it as a fault, and tests search for capacity under it.

`Weather.room` answers it. A process is on and off in turns. Each letter is one:

    G  family, everywhere      ┐
    R  family, region          ├─ all on: room for Spot VMs ┐
    O  machine, zone           ┘                            ├─ room for VMs on demand
    E  machine, zone           ─ on ────────────────────────┘

The shares and times are chosen so that the mild climate resembles records of Spot capacity
(skypilot-org/spot-traces: V100 on AWS, nine zones, 45 days), in which a zone has capacity in 0.64
of the time. What Google says about it in errors and as advice is assumed: no data are public. Times
are seconds.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import Final

MINUTE_S: Final = 60.0
BEGIN_S: Final = -4 * 3600.0
"""Time from which processes are known.

Searches begin at 0, and know what other jobs found before.
"""
# Periods are short or long. Each has an exponential distribution.
SHORT_OFF_S: Final = 20 * MINUTE_S
"""Mean of the short off periods."""
LONG_OFF_S: Final = 300 * MINUTE_S
"""Mean of the long ones."""
SHORT_OFF_SHARE: Final = 0.8
"""Share of the off periods that are short."""
SHORT_ON_SHARE: Final = 0.75
"""Share of the on periods that are short."""
SHORT_ON_OF_MEAN: Final = 0.35
"""Mean of the short on periods, as a share of the mean of all on periods."""
SHORT_ON_MAX_S: Final = 45 * MINUTE_S
"""Longest mean of the short on periods."""
ROOM: Final = 64
"""VMs for which there usually is capacity in an on period."""
NARROW_SHARE: Final = 0.06
"""Share of on periods with little room."""
NARROW_ROOM: Final = (1, 15)
"""Smallest and largest capacity then, in VMs."""
OFFERING_REGIONS: Final = 0.85
"""Share of the regions that offer a machine family."""
OFFERING_ZONES: Final = 0.7
"""Share of the zones of such a region that do."""
NAMING_SHARE: Final = 0.6
"""Share of the errors that name zones at all."""
NAMED_SHARES: Final = (0.1, 0.8)
"""Share of the zones that such an error names: of those without room, and of those with room. The
index is `has_room`.
"""
ADVICE: Final = (0.9, 0.5, 0.1)
"""The chances that Google's advice estimates, from 0 to 1."""
ADVICE_SHARES: Final = ((10, 15, 75), (80, 15, 5))
"""Percentages of the advice with each value of `ADVICE`: without room, and with room. The index is
`has_room`.
"""
ADVICE_AGE_S: Final = 5 * MINUTE_S
"""Time for which advice stays the same. It describes the room this much earlier."""
SHARE_LIMITS: Final = (0.02, 0.98)
"""Smallest and largest share of the time in which a process is on: periods stay finite."""


class Climate(StrEnum):
    """Scarcity of capacity."""

    MILD = "mild"
    SCARCE = "scarce"
    FAMINE = "famine"


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of the time in which each process is on. Those of R and O differ between places: each
    place draws its share from a beta distribution with these parameters.
    """

    family: float
    region: tuple[float, float]
    zone: tuple[float, float]
    extra: float


_CLIMATES: Final = {
    Climate.MILD: _Shares(family=0.95, region=(9, 1.1), zone=(4, 0.9), extra=0.60),
    Climate.SCARCE: _Shares(family=0.85, region=(4, 1.6), zone=(1.6, 1.6), extra=0.35),
    Climate.FAMINE: _Shares(family=0.75, region=(2.5, 2), zone=(0.8, 2.4), extra=0.15),
}
"""The shares of each climate. Parameters of a beta distribution: (9, 1.1) has most of its mass near
1, so that most regions have capacity most of the time; (0.8, 2.4) has it near 0.
"""


@dataclass(frozen=True, slots=True)
class _Periods:
    """Lengths of the on periods of a process, or of its off periods."""

    short_share: float
    """Share of the periods that are short."""
    short_s: float
    """Mean of the short periods."""
    long_s: float
    """Mean of the long periods."""

    def mean_s(self, *, is_short: bool) -> float:
        """Return the mean of the short or of the long periods, in seconds."""
        return self.short_s if is_short else self.long_s

    @property
    def short_time_share(self) -> float:
        """The share of the time that the short periods fill."""
        short_s = self.short_share * self.short_s
        return short_s / (short_s + (1 - self.short_share) * self.long_s)


class Alternating:
    """A process that is on and off in turns, in its stationary state.

    Its changes are drawn as far as a caller's time needs them.
    """

    def __init__(self, rng: random.Random, share: float, scale: float) -> None:
        """`share`: of the time in which it is on. `scale`: factor of the off periods.

        The on periods are as long as the share needs.
        """
        share_min, share_max = SHARE_LIMITS
        share = min(max(share, share_min), share_max)
        self._rng = rng
        off = _Periods(SHORT_OFF_SHARE, scale * SHORT_OFF_S, scale * LONG_OFF_S)
        off_mean = off.short_share * off.short_s + (1 - off.short_share) * off.long_s
        on_mean = share / (1 - share) * off_mean
        short_on = min(SHORT_ON_OF_MEAN * on_mean, SHORT_ON_MAX_S)
        # The long periods make up for the short ones, so that the mean is `on_mean`.
        long_on = (on_mean - SHORT_ON_SHARE * short_on) / (1 - SHORT_ON_SHARE)
        self._off = off
        self._on = _Periods(SHORT_ON_SHARE, short_on, long_on)
        self._begins_on = rng.random() < share
        # In the stationary state, a moment lies in a short period as often as these fill the time.
        first = self._on if self._begins_on else self._off
        is_short = rng.random() < first.short_time_share
        first_s = rng.expovariate(1 / first.mean_s(is_short=is_short))
        self._changes = [BEGIN_S + first_s]
        """Times at which it changes, as far as they have been drawn, in order."""

    def is_on(self, at_s: float) -> bool:
        """Return whether the process is on at this time."""
        return self._is_on_after(self.period(at_s))

    def next_change(self, at_s: float) -> float:
        """Return when the process changes next after this time."""
        return self._changes[self.period(at_s)]

    def period(self, at_s: float) -> int:
        """Return the number of the present period, from 0."""
        self._draw_until(at_s)
        return bisect_right(self._changes, at_s)

    def _is_on_after(self, changes: int) -> bool:
        """Return whether the process is on after this number of changes."""
        return self._begins_on != bool(changes % 2)

    def _draw_until(self, at_s: float) -> None:
        """Draw changes until one is after this time."""
        while self._changes[-1] <= at_s:
            periods = self._on if self._is_on_after(len(self._changes)) else self._off
            is_short = self._rng.random() < periods.short_share
            length_s = self._rng.expovariate(1 / periods.mean_s(is_short=is_short))
            self._changes.append(self._changes[-1] + length_s)


@cache
def is_offered(seed: int, zone: str, family: str) -> bool:
    """Return whether the zone has machines of the family at all."""
    places = ((zone.rpartition("-")[0], OFFERING_REGIONS), (zone, OFFERING_ZONES))
    draws = [
        (random.Random(f"{seed}/offer/{family}/{place}").random(), share)  # noqa: S311
        for place, share in places
    ]
    return all(draw < share for draw, share in draws)


@dataclass
class Weather:
    """The capacity of machines in zones. Equal seeds give equal weather.

    `machine`: its type; empty: one that all zones offer. Machines of a family, such as `a2-`, share
    its processes, and are offered in most regions and most of their zones.
    """

    seed: int
    climate: Climate
    _processes: dict[str, Alternating] = field(default_factory=dict)

    def room(self, zone: str, at_s: float, machine: str = "", *, spot: bool) -> int:
        """Return the number of VMs for which the zone has room at this time."""
        if machine and not is_offered(self.seed, zone, machine.partition("-")[0]):
            return 0
        processes = self._of_spot(zone, machine)
        has_spot = all(process.is_on(at_s) for process in processes)
        extra = self._extra(zone, machine)
        if not has_spot and (spot or not extra.is_on(at_s)):
            return 0
        # The room stays the same as long as none of the processes that decide changes.
        deciding = processes if has_spot else (extra,)
        period = [process.period(at_s) for process in deciding]
        rng = self._rng(f"room/{zone}{machine}/{has_spot}/{period}")
        is_narrow = rng.random() < NARROW_SHARE
        return rng.randint(*NARROW_ROOM) if is_narrow else ROOM

    def next_change(self, zone: str, at_s: float, machine: str = "") -> float:
        """Return when the zone's room may change next."""
        return min(
            process.next_change(at_s)
            for process in (*self._of_spot(zone, machine), self._extra(zone, machine))
        )

    def named(
        self, full: str, zones: Iterable[str], at_s: float, machine: str = "", *, spot: bool
    ) -> tuple[str, ...]:
        """Return the zones of the region that the error of a full zone names.

        Errors within one minute name the same zones, as long as the room stays the same.
        """
        rng = self._rng(f"named/{full}{machine}/{spot}/{at_s // MINUTE_S}")
        near = [
            zone
            for zone in zones
            if zone != full and zone.rpartition("-")[0] == full.rpartition("-")[0]
        ]
        if rng.random() >= NAMING_SHARE:
            return ()
        named = []
        for zone in near:
            has_room = self.room(zone, at_s, machine, spot=spot) > 0
            if rng.random() < NAMED_SHARES[has_room]:
                named.append(zone)
        return tuple(named)

    def advice(self, zone: str, count: int, at_s: float, machine: str = "") -> float:
        """Return the estimated chance of getting `count` Spot VMs. It is new every five minutes,
        and is about the capacity five minutes before.
        """
        made_s = at_s // ADVICE_AGE_S * ADVICE_AGE_S
        has_room = self.room(zone, max(made_s - ADVICE_AGE_S, BEGIN_S), machine, spot=True) >= count
        rng = self._rng(f"advice/{zone}{machine}/{count}/{made_s}")
        return rng.choices(ADVICE, ADVICE_SHARES[has_room])[0]

    @cached_property
    def _shares(self) -> _Shares:
        return _CLIMATES[self.climate]

    def _of_spot(self, zone: str, machine: str) -> tuple[Alternating, ...]:
        """Return G, R and O of the module's table. Larger areas have longer off periods."""
        region = zone.rpartition("-")[0]
        shares = self._shares
        family = machine.partition("-")[0]
        return (
            self._process(f"G{family}", lambda _: shares.family, scale=2),
            self._process(
                f"R{family}/{region}", lambda rng: rng.betavariate(*shares.region), scale=1.5
            ),
            self._process(f"O{machine}/{zone}", lambda rng: rng.betavariate(*shares.zone), scale=1),
        )

    def _extra(self, zone: str, machine: str) -> Alternating:
        """Return E of the module's table."""
        return self._process(f"E{machine}/{zone}", lambda _: self._shares.extra, scale=1.5)

    def _process(
        self, key: str, share: Callable[[random.Random], float], scale: float
    ) -> Alternating:
        """Return the process with this key. Each has a generator of its own.

        `share`: draws the share of the time in which it is on. `scale`: factor of its off periods.
        """
        if key not in self._processes:
            rng = self._rng(f"{self.climate}/{key}")
            self._processes[key] = Alternating(rng, share(rng), scale)
        return self._processes[key]

    def _rng(self, key: str) -> random.Random:
        """Return a new generator for this key: equal keys draw equal numbers."""
        return random.Random(f"{self.seed}/{key}")  # noqa: S311 - weather keeps no secret
