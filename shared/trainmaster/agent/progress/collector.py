"""Collects the program's progress, from the best source that has news: as points for each report
to Cloud Monitoring, and once more when the program has ended, for its exit.

    reports to the status server ──┐
    the end of the output ─────────┼──► position from the first source that has one,
    summary events of the job ─────┘    metrics likewise ──► points

A reading has a position (share, steps) or metrics, or both. Only the agent of the primary, the
replica whose exit 0 ends the job, has a collector. A source counts only with something new since
the last report, so that a program that hangs shows no progress. Summary events are listed only
while neither of the others has metrics: a job that reports costs no request to Cloud Storage.
docs/decisions/0124-progress.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from trainmaster.agent.metric.summary_metric import SummaryMetric
from trainmaster.agent.model.reading import METRICS_MAX, Reading
from trainmaster.agent.model.results import LastProgress, NamedValue
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.progress.printed import read_last_printed, read_printed
from trainmaster.agent.reporting.serial_console import Console

TAKEOVER_S = 120.0
"""Time without news from a source after which a worse one replaces it, and summary events are read.
"""
POLL_S = 15.0
"""How often it looks whether summary events are needed."""
PROGRESS_FOLDER = "/var/run/trainmaster-progress"
"""Where a container finds the folder of the status server."""
SOURCES = ("reported", "printed", "events")
"""What the program reports itself, what it prints, and its summary events: the best one first.

The index of a source is its rank. Lists of readings have one of each source, in this order.
"""
REPORTED = 0
PRINTED = 1
EVENTS = 2
NOTHING = Reading()


class ProgressPoint(NamedTuple):
    """One value of a report."""

    name: str
    """`share`, `step`, `steps`, or `metric/` or `not_finite/` and the name of a metric."""
    value: float
    source: str


class ProgressCollector:
    """The progress of one incarnation (execution of the program) after the other.

    The launcher calls `begin` and `last`; the utilization monitor calls `points` for each of its
    reports. All methods may be called from any thread.
    """

    def __init__(
        self,
        work: Path,
        console: Console,
        events: SummaryMetric | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`events`: reader of summary events; None if the job has no directory for them."""
        # Imported here, because most VMs need no HTTP server.
        from trainmaster.agent.progress.status_server import StatusServer

        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._key: IncarnationKey | None = None
        self._read_output: Callable[[], str] = str
        self._started_at = 0.0
        """When the incarnation was started, in seconds since 1970."""
        self._metrics_at = 0.0
        """When a report or the output last had new metrics, by `clock`; the start, if they never
        had.
        """
        self._reported: Reading | None = None
        """The latest report since the last points."""
        self._last = [NOTHING] * len(SOURCES)
        """For each source, its last reading that had new values."""
        self._chosen: dict[str, tuple[int, float]] = {}
        """`position` or `metrics` → the rank of the source that last had new values of them, and
        the time of that by `clock`.
        """
        self._names: set[str] = set()
        """Names of metrics in the points so far, of all incarnations: each is a time series."""
        self._counts_from_zero = False
        """Whether the program has named an epoch 0."""
        self._counts_within_epoch = False
        """Whether printed steps count within an epoch: they have gone back since the start, because
        each epoch has a progress bar of its own.
        """
        try:
            self._server: StatusServer | None = StatusServer(work / "progress", self._take)
        except OSError as error:
            self._server = None
            console.log(f"Programs cannot report their progress: {error}")

    @property
    def folder(self) -> Path | None:
        """The folder that a container mounts, to report progress; None: programs cannot report."""
        return self._server.folder if self._server is not None else None

    def variables(self, folder: str) -> Mapping[str, str]:
        """Return the program's variables.

        `folder`: where the program finds the folder of the server.
        """
        return self._server.variables(folder) if self._server is not None else {}

    def serve(self) -> None:
        """Receive reports without end, in a thread of its own."""
        if self._server is not None:
            self._server.run()

    def run(self) -> NoReturn:
        """Read summary events when they are needed, without end, in a thread of its own."""
        while True:
            time.sleep(POLL_S)
            self.read_events_if_needed()

    def begin(self, key: IncarnationKey, read_output: Callable[[], str]) -> None:
        """Watch the program of this incarnation.

        `read_output` returns the end of its output, in whole lines.
        """
        with self._lock:
            self._key = key
            self._read_output = read_output
            self._reported = None
            self._started_at = time.time()
            self._metrics_at = self._clock()
            self._last = [NOTHING] * len(SOURCES)
            self._chosen = {}
            self._counts_from_zero = False
            self._counts_within_epoch = False

    def read_events_if_needed(self) -> None:
        """Read summary events, unless a report or the output had new metrics lately."""
        lack_metrics = self._clock() - self._metrics_at >= TAKEOVER_S
        if self._events is not None and self._key is not None and lack_metrics:
            self._events.read_if_due()

    def points(self) -> list[ProgressPoint]:
        """Return the points of one report; none if no source has news."""
        with self._lock:
            if self._key is None:
                return []
            printed = read_printed(self._read_output())
            self._remember_printed(printed)
            readings = [self._reported or NOTHING, printed, NOTHING]
            self._reported = None
            if any(reading.has_metrics for reading in self._news_of(readings)):
                self._metrics_at = self._clock()
            elif self._events is not None:
                readings[EVENTS] = self._events.latest(self._started_at)
            news = self._news_of(readings)
            for rank, reading in enumerate(news):
                if reading != NOTHING:
                    self._last[rank] = reading
            return [*self._position(news), *self._metrics(news)]

    def last(self) -> LastProgress | None:
        """Return how far the program was at its end, after its output was read; None: unknown.

        The best source that has ever had something counts, whether or not it is news.
        """
        with self._lock:
            if self._key is None:
                return None
            reported = self._reported or self._last[REPORTED]
            readings = [reported, self._last_printed(), self._last[EVENTS]]
            position = next((reading for reading in readings if reading.has_position), NOTHING)
            metrics = next((reading for reading in readings if reading.has_metrics), NOTHING)
            last = _last_progress(position, metrics, counts_from_zero=self._counts_from_zero)
            return None if last == LastProgress() else last

    def _last_printed(self) -> Reading:
        """Return what the program printed last: its metrics, and a position that can be trusted."""
        printed = read_last_printed(self._read_output())
        self._remember_printed(printed)
        if self._counts_within_epoch:
            # A full bar of an unknown epoch is not the end of the work.
            is_known = printed.epoch is not None
            return printed if is_known else replace(printed, share=None, step=None, steps=None)
        if printed.has_position:
            return printed
        # The last lines have no position any more: the one that was read before them counts.
        before = self._last[PRINTED]
        return replace(before, metrics=printed.metrics, not_finite=printed.not_finite)

    def _remember_printed(self, printed: Reading) -> None:
        """Remember what later readings of the output no longer show: only its end is read."""
        before = self._last[PRINTED]
        self._counts_from_zero |= printed.counts_from_zero
        if printed.step is not None and before.step is not None:
            has_same_total = printed.steps == before.steps and printed.steps is not None
            self._counts_within_epoch |= has_same_total and printed.step < before.step

    def _news_of(self, readings: Sequence[Reading]) -> list[Reading]:
        """Return the reading of each source, or `NOTHING` if it is the same as the last one."""
        return [
            NOTHING if reading == last else reading for reading, last in zip(readings, self._last)
        ]

    def _position(self, news: Sequence[Reading]) -> Iterator[ProgressPoint]:
        """Yield the points of the position, from the best source that has one."""
        rank = self._choose("position", [reading.has_position for reading in news])
        if rank is None:
            return
        best = news[rank]
        for name, value in (("share", best.share), ("step", best.step), ("steps", best.steps)):
            if value is not None:
                yield ProgressPoint(name, float(value), SOURCES[rank])

    def _metrics(self, news: Sequence[Reading]) -> Iterator[ProgressPoint]:
        """Yield the points of metrics, from the best source that has any."""
        rank = self._choose("metrics", [reading.has_metrics for reading in news])
        if rank is None:
            return
        for name, value in news[rank].metrics.items():
            if self._admit(name):
                yield ProgressPoint(f"metric/{name}", value, SOURCES[rank])
        for name in news[rank].not_finite:
            if self._admit(name):
                # Cloud Monitoring takes finite values only.
                yield ProgressPoint(f"not_finite/{name}", value=1.0, source=SOURCES[rank])

    def _admit(self, name: str) -> bool:
        """Return whether a metric may have points: each name is a time series, and their number is
        limited.
        """
        is_admitted = name in self._names or len(self._names) < METRICS_MAX
        if is_admitted:
            self._names.add(name)
        return is_admitted

    def _choose(self, kind: str, has_news: Sequence[bool]) -> int | None:
        """Return the rank of the best source with news; None if no source has any.

        For `TAKEOVER_S` after a better source had news, a worse one does not replace it: None, too.
        """
        if True not in has_news:
            return None
        rank = has_news.index(True)
        if kind in self._chosen:
            last_rank, chosen_at = self._chosen[kind]
            is_worse = rank > last_rank
            if is_worse and self._clock() - chosen_at < TAKEOVER_S:
                return None
        self._chosen[kind] = (rank, self._clock())
        return rank

    def _take(self, reading: Reading) -> None:
        """Keep a report of the program. Called by the status server, on its thread."""
        with self._lock:
            known = self._reported or self._last[REPORTED]
            if known.steps is not None and reading.steps is None:
                # At its end, Hugging Face's Trainer reports 100 % without steps, also if it was
                # stopped halfway.
                reading = Reading(metrics=reading.metrics)
            self._reported = reading


def _last_progress(position: Reading, metrics: Reading, *, counts_from_zero: bool) -> LastProgress:
    """Return the progress at the end.

    A program names its last epoch while it runs or after it, so the epoch counts as done.
    """
    epoch = position.epoch
    if epoch is not None and counts_from_zero:
        epoch += 1
    share = position.share
    if epoch is not None and position.epochs and position.step is None:
        share = min(epoch / position.epochs, 1.0)
    return LastProgress(
        share=share,
        step=position.step,
        steps=position.steps,
        epoch=epoch,
        epochs=position.epochs,
        metrics=tuple(NamedValue(name, value) for name, value in metrics.metrics.items()),
        not_finite=metrics.not_finite,
    )
