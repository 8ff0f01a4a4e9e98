"""Machine time, goodput and cost of a job, as `describe` prints them and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.core.reporting.goodput import AttemptTime, Goodput
from trainmaster.core.reporting.lost_work import LostWork
from trainmaster.cost.report import CostReport
from trainmaster.cost.sku import Unknown
from trainmaster.presentation.cost_view import cost_lines, cost_sentence, cost_view


def report_view(report: CostReport) -> dict[str, Any]:
    """Return what `describe --format json` shows under `trainmaster`, besides the job itself."""
    operations = report.operations
    return {
        "machineTime": machine_time_view(report.goodput),
        "cost": cost_view(report.cost),
        "controlPlane": {
            "invocations": operations.invocations,
            "reads": operations.reads,
            "writes": operations.writes,
            "deletes": operations.deletes,
            "usd": round(operations.dollars, 8),
        },
    }


def machine_time_view(goodput: Goodput) -> dict[str, Any]:
    """Return the machine-seconds by attempt and phase. Phases without time are left out.

    Counted is the time from RUNNING to the end, which AI Platform Training charged; paid is the
    time with a VM. `unpartedMachineSeconds` may be paid in part, and is in neither.
    """
    view: dict[str, Any] = {
        "countedMachineSeconds": round(goodput.counted_s, 3),
        "paidMachineSeconds": round(goodput.paid_s, 3),
        "lostAtLeastMachineSeconds": round(goodput.lost.at_least_s, 3),
        "lostAtMostMachineSeconds": round(goodput.lost.at_most_s, 3),
        "attempts": [_attempt_view(attempt) for attempt in goodput.attempts],
    }
    if goodput.unsplit_s:
        view["unpartedMachineSeconds"] = round(goodput.unsplit_s, 3)
    if goodput.at_least is not None and goodput.at_most is not None:
        view["goodput"] = {
            "atLeast": round(goodput.at_least, 4),
            "atMost": round(goodput.at_most, 4),
        }
    return view


def report_lines(report: CostReport) -> Iterator[str]:
    """Yield goodput, lost work, machine-hours and cost by attempt, and the control plane's work."""
    goodput = report.goodput
    if goodput.words:
        yield f"goodput: {goodput.words}"
    if report.losses:
        yield f"lost work: {lost_work_words(report)}"
    for attempt in goodput.attempts:
        hours = [
            f"{phase} {seconds / 3600:.2f}"
            for phase, seconds in attempt.total_s.items()
            if seconds >= 1
        ]
        if hours:
            yield (
                f"machine-hours of attempt {attempt.attempt}: {', '.join(hours)}; paid"
                f" {attempt.paid_s / 3600:.2f}"
            )
    if goodput.unsplit_s:
        unsplit = f"{goodput.unsplit_s / 3600:.2f} machine-hours"
        yield (
            f"perhaps paid in part: {unsplit} of search and setup, because agents have not"
            " reported when they started"
        )
    yield from cost_lines(report.cost)
    yield f"control plane: {report.operations.words}"


def final_sentence(report: CostReport) -> str:
    """Return machine-hours, goodput and cost in one line, which `trainmaster wait` prints last."""
    goodput = report.goodput
    parts = [f"{goodput.paid_s / 3600:.2f} machine-hours paid"]
    if goodput.words:
        parts.append(f"goodput {goodput.words}")
    return f"{', '.join(parts)}; {cost_sentence(report.cost)}"


def lost_work_words(report: CostReport) -> str:
    """Return the lost work with both bounds, and where the estimate comes from."""
    lost = report.goodput.lost
    noun = "loss" if len(report.losses) == 1 else "losses"
    words = f"{_hours_between(lost)} machine-hours by {len(report.losses)} {noun} (estimate)"
    listing = report.listing
    if isinstance(listing, Unknown):
        return f"{words}; {listing.reason}"
    if listing is None:
        return words
    words = f"{words}; from the times of objects in {listing.directory}"
    return words if listing.is_complete else f"{words}, which has more than were listed"


def _hours_between(lost: LostWork) -> str:
    low = f"{lost.at_least_s / 3600:.2f}"
    high = f"{lost.at_most_s / 3600:.2f}"
    return high if low == high else f"{low} to {high}"


def _attempt_view(attempt: AttemptTime) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "machineSeconds": {
            phase.value: round(seconds, 3) for phase, seconds in attempt.total_s.items() if seconds
        },
        "counted": {
            phase.value: round(seconds, 3)
            for phase, seconds in attempt.counted_s.items()
            if seconds
        },
        "paid": round(attempt.paid_s, 3),
        "lostAtLeast": round(attempt.lost.at_least_s, 3),
        "lostAtMost": round(attempt.lost.at_most_s, 3),
    }
