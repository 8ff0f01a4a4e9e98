"""Machine time and goodput of a job, as `describe` prints them and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.core.reporting.goodput import AttemptTime, Goodput


def machine_time_view(goodput: Goodput) -> dict[str, Any]:
    """Return the machine-seconds by attempt and phase. Phases without time are left out."""
    view: dict[str, Any] = {
        "countedMachineSeconds": round(goodput.counted_s, 3),
        "lostAtMostMachineSeconds": round(goodput.lost_at_most_s, 3),
        "attempts": [_attempt_view(attempt) for attempt in goodput.attempts],
    }
    if goodput.at_least is not None and goodput.at_most is not None:
        view["goodput"] = {"atLeast": round(goodput.at_least, 4), "atMost": round(goodput.at_most, 4)}
    return view


def machine_time_lines(goodput: Goodput) -> Iterator[str]:
    """Yield a line with the goodput, and one for each attempt."""
    if goodput.words:
        yield f"goodput: {goodput.words}"
    for attempt in goodput.attempts:
        hours = [f"{phase} {seconds / 3600:.2f}" for phase, seconds in attempt.total_s.items() if seconds >= 1]
        if hours:
            yield f"machine-hours of attempt {attempt.attempt}: {', '.join(hours)}"


def _attempt_view(attempt: AttemptTime) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "machineSeconds": {phase.value: round(seconds, 3) for phase, seconds in attempt.total_s.items() if seconds},
        "counted": {phase.value: round(seconds, 3) for phase, seconds in attempt.counted_s.items() if seconds},
    }
