"""Bands behind the charts of resource metrics: the incarnations of one replica, or when any replica
did not run.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Final

from trainmaster.console.chart_axis import chart_x
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.history import History
from trainmaster.core.reporting.phases import Phase, Span, replica_spans

NAMED_MAX: Final = 3
"""Replicas that the words of a band name."""
LABEL_WIDTH_MIN: Final = 24.0
"""Narrower bands have no number."""
INTERRUPTIONS_MAX: Final = 250
"""Largest number of interruption bands in a chart. Interruptions are drawn as one band if they are
at most this part of the chart, 1/250, apart.
"""


class BandKind(StrEnum):
    """The kind of a band, which decides about its colour."""

    ODD = "odd"
    EVEN = "even"
    """Incarnations of one replica, in turn."""
    INTERRUPTED = "interrupted"
    """At least one replica that had run before did not run."""


@dataclass(frozen=True, slots=True)
class Band:
    """A range of time with a label."""

    start: datetime
    end: datetime
    kind: BandKind
    label: str
    """Number of the incarnation; empty for an interruption."""
    words: str
    """The band in words, with its times."""


@dataclass(frozen=True, slots=True)
class DrawnBand:
    """A band in the units of the charts."""

    x: float
    width: float
    kind: BandKind
    label: str
    """Empty if the band is too narrow for it."""
    words: str


def incarnation_bands(history: History, replica_id: ReplicaId, now: datetime) -> tuple[Band, ...]:
    """Return a band for each incarnation of the replica, while its program ran.

    `now`: the end of the last one.
    """
    running = [
        span
        for span in replica_spans(history)
        if span.replica_id == replica_id and span.phase is Phase.RUNNING
    ]
    by_incarnation = groupby(running, lambda span: (span.attempt, span.incarnation))
    bands = []
    for number, ((attempt, incarnation), spans) in enumerate(by_incarnation):
        parts = tuple(spans)
        start = parts[0].start
        end = parts[-1].end or now
        kind = BandKind.EVEN if number % 2 else BandKind.ODD
        words = (
            f"attempt {attempt}, incarnation {incarnation},"
            f" VM generation {parts[-1].vm_generation}: {_times(start, end)}"
        )
        bands.append(Band(start, end, kind, str(incarnation), words))
    return tuple(bands)


def interruption_bands(history: History, start: datetime, now: datetime) -> tuple[Band, ...]:
    """Return the times at which a replica that had run before did not run.

    Neighbouring ones are one band.
    """
    down: list[Span] = []
    for _, spans in groupby(sorted(replica_spans(history), key=_replica_key), _replica_key):
        has_run = False
        for span in spans:
            if has_run and span.phase not in (Phase.RUNNING, Phase.COMPLETED):
                down.append(span)
            has_run = has_run or span.phase is Phase.RUNNING
    distance = (now - start) / INTERRUPTIONS_MAX
    interruptions: list[_Interruption] = []
    for span in sorted(down, key=lambda span: span.start):
        end = span.end or now
        last = interruptions[-1] if interruptions else None
        if last is not None and span.start - last.end <= distance:
            last.end = max(last.end, end)
            last.spans.append(span)
        else:
            interruptions.append(_Interruption(span.start, end, [span]))
    return tuple(
        Band(item.start, item.end, BandKind.INTERRUPTED, label="", words=_words(item))
        for item in interruptions
    )


@dataclass
class _Interruption:
    """A time in which some replicas did not run."""

    start: datetime
    end: datetime
    spans: list[Span]
    """The replicas' spans in this time."""


def draw_bands(bands: Iterable[Band], start: datetime, end: datetime) -> tuple[DrawnBand, ...]:
    """Return the bands within a range of time, in the units of the charts."""
    return tuple(
        _draw_band(band, start, end) for band in bands if band.start < end and band.end > start
    )


def _draw_band(band: Band, start: datetime, end: datetime) -> DrawnBand:
    left = chart_x(band.start, start, end)
    right = chart_x(band.end, start, end)
    width = max(round(right - left, 1), 1.0)
    label = band.label if width >= LABEL_WIDTH_MIN else ""
    return DrawnBand(left, width, band.kind, label, band.words)


def _replica_key(span: Span) -> tuple[str, int]:
    return span.replica_id.task_type, span.replica_id.index


def _words(interruption: _Interruption) -> str:
    names = list(dict.fromkeys(span.replica_id.words for span in interruption.spans))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    times = _times(interruption.start, interruption.end)
    return f"{', '.join(names[:NAMED_MAX])}{more} did not run: {times}"


def _times(start: datetime, end: datetime) -> str:
    return f"{start:%H:%M:%S} to {end:%H:%M:%S}"
