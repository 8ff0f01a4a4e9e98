"""The section of a job's page about machine time and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.console.cost_bar import DrawnCost, draw_cost
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.reporting.goodput import Goodput
from trainmaster.core.reporting.history import History
from trainmaster.core.reporting.phases import PAID, Phase
from trainmaster.cost.job_cost import JobCost
from trainmaster.cost.report import CostReport, CostSources, cost_report
from trainmaster.cost.sku import Unknown
from trainmaster.presentation.cost_view import cost_sentence, money_words
from trainmaster.presentation.durations import HOUR_S
from trainmaster.presentation.machine_time import lost_work_words


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of one attempt."""

    attempt: int
    phase: Phase
    hours: float
    """Machine-hours since the acceptance of the job."""
    is_paid: bool
    cost: str
    """Empty: there is no VM, or the price is not known."""


@dataclass(frozen=True, slots=True)
class CostSection:
    """The section about machine time and cost."""

    goodput: Goodput
    bars: DrawnCost | None
    rows: tuple[PhaseRow, ...]
    paid_s: float
    """Machine-seconds in which there was a VM, also those after the end in which it was kept."""
    has_prices: bool
    cost: str
    """The whole cost in a sentence, or why it is not known."""
    lost: str
    """Lost work with its bounds; empty: nothing was lost."""
    control_plane: str
    """The control plane's own operations and their price, in words."""


def read_cost_section(
    history: History | None, entries: Sequence[LedgerEntry], now: datetime, sources: CostSources
) -> CostSection | None:
    """Return the section; None for a tuning job, or if the job's history has expired."""
    report = cost_report(history, entries, now, sources) if history else None
    if report is None:
        return None
    return CostSection(
        goodput=report.goodput,
        bars=draw_cost(report.goodput),
        rows=_rows(report),
        paid_s=report.goodput.paid_s + report.kept_s,
        has_prices=isinstance(report.cost, JobCost),
        cost=cost_sentence(report.cost),
        lost=lost_work_words(report) if report.losses else "",
        control_plane=report.operations.words,
    )


def _rows(report: CostReport) -> tuple[PhaseRow, ...]:
    """Return a row for each phase that took at least a tenth of a second of machine time."""
    rows = []
    last = report.goodput.attempts[-1:]
    for attempt in report.goodput.attempts:
        for phase in Phase:
            seconds = attempt.total_s.get(phase, 0.0)
            if phase is Phase.KEPT and attempt in last:
                seconds += report.kept_s
            if round(seconds, 1):
                cost = _cost_words(report.cost, attempt.attempt, phase)
                rows.append(PhaseRow(attempt.attempt, phase, seconds / HOUR_S, phase in PAID, cost))
    return tuple(rows)


def _cost_words(cost: JobCost | Unknown, attempt: int, phase: Phase) -> str:
    """Return the price of a phase of an attempt; empty if it has none, or none is known."""
    if isinstance(cost, Unknown):
        return ""
    amount = cost.by_attempt.get(attempt, {}).get(phase)
    return money_words(amount, cost.currency) if amount else ""
