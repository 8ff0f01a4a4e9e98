"""Order of the trials table, from the address: `?sort=COLUMN&order=asc|desc`; without it, the best
first.

The queries also keep the rest of the page's state: `table=1` shows all rows instead of the first
ones (`whole`), and each `brush` is a range that the user selected on an axis of the chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from trainmaster.console.tuning_brush import Brush
from trainmaster.core.model.tuning import Trial, Tuning
from trainmaster.errors import PermanentError

ORDERS: Final = ("asc", "desc")
PARAMETER: Final = "parameter:"
"""Prefix of a parameter in the address, which may have the name of another column."""
VALUE: Final = "value"
"""Column of the metric in the address. Its header has the name of the metric."""
_COLUMNS: Final = ("trial", "state", VALUE, "step", "started", "took")

Sortable = float | str


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """Column and direction; an empty column: the best trial first, as the goal says."""

    column: str
    order: str

    def next_query(self, column: str, brushes: Iterable[Brush], *, whole: bool) -> str:
        """Return the query that sorts by the column, or reverses the order if it does already."""
        order = "desc" if column == self.column and self.order == "asc" else "asc"
        return TrialOrder(column, order).query(brushes, whole=whole)

    def query(self, brushes: Iterable[Brush], *, whole: bool) -> str:
        """Return the query of the table in this order."""
        pairs = [("sort", self.column), ("order", self.order)] if self.column else []
        pairs += [("table", "1")] if whole else []
        return urlencode([*pairs, *(("brush", brush.text) for brush in brushes)])

    def words(self, tuning: Tuning) -> str:
        """Return the name of the column, as its header has it."""
        return tuning.metric_tag if self.column == VALUE else self.column.removeprefix(PARAMETER)

    def aria_sort(self, column: str) -> str:
        """Return the value of `aria-sort` of the column's header."""
        if column != self.column:
            return "none"
        return "ascending" if self.order == "asc" else "descending"


def read_order(sort: str, order: str, tuning: Tuning) -> TrialOrder:
    """Parse the address. Raises PermanentError that names the parameter and its values."""
    columns = (*_COLUMNS, *(f"{PARAMETER}{parameter.name}" for parameter in tuning.parameters))
    if order not in ("", *ORDERS):
        raise PermanentError(f"order: must be one of {', '.join(ORDERS)}, or be left out")
    if sort and sort not in columns:
        raise PermanentError(f"sort: must be one of {', '.join(columns)}, or be left out")
    return TrialOrder(sort, order or "asc")


def sorted_trials(tuning: Tuning, order: TrialOrder) -> list[Trial]:
    """Return all trials in the order.

    Trials without a value in the column come last in both directions.
    """
    if not order.column:
        return list(tuning.best_first())
    key = _key_of(order.column, tuning)
    present: list[tuple[Sortable, Trial]] = []
    absent: list[Trial] = []
    for trial in tuning.best_first():
        value = key(trial)
        if value is None:
            absent.append(trial)
        else:
            present.append((value, trial))
    present.sort(key=lambda pair: pair[0], reverse=order.order == "desc")
    return [trial for _, trial in present] + absent


def _key_of(column: str, tuning: Tuning) -> Callable[[Trial], Sortable | None]:
    if column.startswith(PARAMETER):
        names = [parameter.name for parameter in tuning.parameters]
        index = names.index(column.removeprefix(PARAMETER))
        return lambda trial: tuning.parameters[index].typed(trial.values[index])
    keys: dict[str, Callable[[Trial], Sortable | None]] = {
        "trial": lambda trial: trial.number,
        "state": lambda trial: trial.state.value,
        VALUE: lambda trial: (
            trial.latest.value if trial.latest and not math.isnan(trial.latest.value) else None
        ),
        "step": lambda trial: trial.latest.step if trial.latest else None,
        "started": lambda trial: trial.started_at.timestamp() if trial.started_at else None,
        "took": _seconds,
    }
    return keys[column]


def _seconds(trial: Trial) -> float | None:
    """Return how long the trial took; None if it has not ended."""
    if trial.started_at is None or trial.ended_at is None:
        return None
    return (trial.ended_at - trial.started_at).total_seconds()
