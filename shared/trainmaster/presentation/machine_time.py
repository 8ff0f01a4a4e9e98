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
    """Return the machine-seconds by attempt and phase. Phases without time are left out."""
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
    """Yield goodput, lost work, machine-hours and cost by attempt, and the control plane's own
    work.
    """
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
            f"perhaps not paid: {unsplit} of search and setup, because agents did not report when"
            " they started"
        )
    yield from cost_lines(report.cost)
    yield f"control plane: {report.operations.words}"


def final_sentence(report: CostReport) -> str:
    """Return machine-hours, goodput and cost in one line, which `trainmaster wait` prints last."""
    goodput = report.goodput
    parts = [f"{goodput.paid_s / 3600:.2f} machine-hours paid"]
    parts += [f"goodput {goodput.words}"] if goodput.words else []
    return f"{', '.join(parts)}; {cost_sentence(report.cost)}"


def lost_work_words(report: CostReport) -> str:
    """Return the lost work with both bounds, and where the estimate comes from."""
    lost = report.goodput.lost
    number = f"{len(report.losses)} loss{'' if len(report.losses) == 1 else 'es'}"
    words = f"{_hours_between(lost)} machine-hours by {number} (estimate)"
    if isinstance(report.listing, Unknown):
        return f"{words}; {report.listing.reason}"
    if report.listing is None:
        return words
    where = f"from the times of objects in {report.listing.directory}"
    return f"{words}; {where}" + (
        "" if report.listing.is_complete else ", which has more than were listed"
    )


def _hours_between(lost: LostWork) -> str:
    low, high = f"{lost.at_least_s / 3600:.2f}", f"{lost.at_most_s / 3600:.2f}"
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
