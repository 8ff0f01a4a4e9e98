"""The figures of a realistic local stack, with their sources; and two parts of it: the quota of
calls, and the delay of lists.

`time_scale` shortens all durations for tests: 0.1 makes a minute last six seconds. Times that real
programs need, such as the notice of a preemption and the time to shut down, are never scaled.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Span:
    """A duration between two bounds, in seconds."""

    low_s: float
    high_s: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low_s, self.high_s)

    def scaled(self, factor: float) -> Span:
        return Span(self.low_s * factor, self.high_s * factor)


@dataclass(frozen=True, slots=True)
class Profile:
    """Times and quotas of the local stack, with the sources of Google Cloud's values."""

    create: Span
    """From the insert of a VM to RUNNING. Source: measurements of the time until SSH answers (2017:
    42 s on average of 20 VMs; 2018: 23 to 25 s up to 32 vCPUs, less than 60 s with 96).
    """
    delete: Span
    """From the power-off of a VM to the end of its deletion.

    Source: the time that a guest has after the ACPI signal, 30 s with Spot and about 90 s
    otherwise.
    """
    audit_log: Span
    """From a system event to its entry in the audit log.

    Source: "Log entries usually arrive within seconds".
    """
    maintenance_notice_s: float
    """From the maintenance event in a VM's metadata to its stop.

    Source: "Host maintenance": 60 s without GPUs.
    """
    calls_per_minute: int
    """API calls of a project per minute: one quota for reads, an equal one for changes.

    Source: "Compute Engine rate quotas".
    """
    minute_s: float
    """Length of the minute of `calls_per_minute`."""
    list_lag: Span
    """From the insert of a VM to its appearance in lists.

    Source: none; Compute Engine promises no time, and its own tools wait for operations instead of
    listing.
    """
    tpu_create: Span
    """From the request of a TPU node to READY. Source: none; users report one to several minutes.
    """
    tpu_delete: Span
    """From the shutdown of a TPU node's hosts to the end of its deletion.

    Source: none; as for VMs.
    """
    tpu_stockouts: float
    """Share of the TPU nodes whose creation fails at its end, for lack of capacity.

    Source: none; users report that on-demand nodes often fail in this way.
    """
    late_failures: float
    """Share of the inserts whose operation fails at its end, for lack of capacity.

    Source: none; chosen so that jobs of a few VMs have some such failures.
    """

    def scaled(self, factor: float) -> Profile:
        """Return the profile with all durations multiplied by the factor."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        spans: dict[str, Any] = {
            name: value.scaled(factor) for name, value in values.items() if isinstance(value, Span)
        }
        return replace(
            self,
            **spans,
            maintenance_notice_s=self.maintenance_notice_s * factor,
            minute_s=self.minute_s * factor,
        )


GOOGLE_CLOUD: Final = Profile(
    create=Span(low_s=20, high_s=60),
    delete=Span(low_s=30, high_s=90),
    audit_log=Span(low_s=2, high_s=20),
    maintenance_notice_s=60,
    calls_per_minute=1_500,
    minute_s=60,
    list_lag=Span(low_s=0, high_s=5),
    tpu_create=Span(low_s=60, high_s=180),
    tpu_delete=Span(low_s=30, high_s=90),
    tpu_stockouts=0.2,
    late_failures=0.05,
)


class CallQuota:
    """Counts the calls of each group within a minute, as Compute Engine does. Thread-safe.

    Minutes begin with those of the clock, not with the first call. The quota of one minute may
    therefore be used up in its last second, and the quota of the next minute one second later.
    Source: "Compute Engine rate quotas", "refilled every 60 seconds".
    """

    def __init__(self, per_minute: int, minute_s: float, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._minute_s = minute_s
        self._clock = clock
        self._lock = threading.Lock()
        self._minute = -1
        self._calls: Counter[str] = Counter()

    def admits(self, group: str) -> bool:
        """Count a call. Return False if the quota of its group is used up for this minute."""
        minute = int(self._clock() // self._minute_s)
        with self._lock:
            if minute != self._minute:
                self._minute = minute
                self._calls.clear()
            self._calls[group] += 1
            return self._calls[group] <= self._per_minute


@dataclass(frozen=True, slots=True)
class ListLag:
    """The delay after which lists show a new resource.

    Each resource always has the same delay, so that one that a list has shown never disappears from
    later lists.
    """

    span: Span

    def hides(self, number: int, created_at: datetime, now: datetime) -> bool:
        """Return whether lists do not yet contain the resource with this numeric id.

        The id is the seed of its delay.
        """
        delay_s = self.span.draw(Random(number))  # noqa: S311 - a duration, not a secret
        return now < created_at + timedelta(seconds=delay_s)
