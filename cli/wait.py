"""Waiting for a job: at a terminal a table that stays up to date, elsewhere a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cli.output import cell, complain, replica_word
from shared.core.model.job import JobState, State
from shared.core.model.tuning import Tuning
from shared.errors import PermanentError, TemporaryError
from shared.ports import Store
from shared.presentation.ml_units import usage
from shared.presentation.price import Price
from shared.settings import settings

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

POLL_S: Final = 1.0
FAILED: Final = 1
BEST_SHOWN: Final = 10


def wait(job_id: str, store: Store, sleep: Callable[[float], None] = time.sleep) -> State:
    """The job when it has ended. Shows its progress on standard error, so that standard output is the result's.

    Trouble that passes is told, and waited for.
    """
    with _shown() as show:
        while True:
            try:
                loaded = store.load_attempt(job_id)
            except TemporaryError as error:
                complain(f"trying again: {error}")
                sleep(POLL_S)
                continue
            if loaded is None:
                raise PermanentError(f"there is no job {job_id}; `trainmaster jobs list` shows those there are")
            show(loaded.state)
            if loaded.state.job.state.is_terminal:
                return loaded.state
            sleep(POLL_S)


def exit_status(state: State) -> int:
    """As gcloud's: 1 for every end but SUCCEEDED."""
    return 0 if state.job.state is JobState.SUCCEEDED else FAILED


@contextmanager
def _shown() -> Iterator[Callable[[State], None]]:
    if not sys.stderr.isatty():
        yield _Lines().show
        return
    from rich.console import Console
    from rich.live import Live

    price = settings().ml_unit_price
    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda state: live.update(table(state, datetime.now(UTC), price), refresh=True)


class _Lines:
    """A line when the job's state changes, and one when a replica's or a trial's does."""

    def __init__(self) -> None:
        self._last = ""
        self._replicas: dict[str, str] = {}
        self._trials: dict[int, str] = {}

    def show(self, state: State) -> None:
        if state.job.state != self._last:
            self._last = state.job.state
            complain(f"{state.job.job_id}: {state.job.state}")
        for trial in state.job.tuning.trials if state.job.tuning else ():
            if self._trials.get(trial.number) != trial.state:
                self._trials[trial.number] = trial.state
                value = f", {trial.measurement.value:g}" if trial.measurement else ""
                complain(f"  trial {trial.number}: {trial.state}{value}")
        for replica in state.replicas:
            now = f"{replica.state}" + (f" (incarnation {replica.incarnation})" if replica.incarnation > 1 else "")
            if self._replicas.get(replica.key) != now and not state.job.state.is_terminal:
                self._replicas[replica.key] = now
                complain(f"  {replica.replica_id.words}: {now}")


def _add_trials(tuning: Tuning, found: Table) -> None:
    """The best, and what is under way: a thousand are more than a screen."""
    for column in ("TRIAL", "STATE", tuning.metric_tag.upper(), *(each.name.upper() for each in tuning.parameters)):
        found.add_column(cell(column))
    best = tuning.best_first()[:BEST_SHOWN]
    for trial in (*best, *(trial for trial in tuning.live if trial not in best)):
        value = f"{trial.measurement.value:g}" if trial.measurement else ""
        found.add_row(str(trial.number), trial.state, value, *map(cell, trial.values))


def table(state: State, now: datetime, price: Price | None = None) -> Group:
    """The job's replicas, or its trials, under its state, its time, and what it has used so far. `price`: of an ML
    unit."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    job = state.job
    spent = (job.ended_at or now) - job.created_at
    hours, seconds = divmod(int(spent.total_seconds()), 3600)
    title = f"{job.job_id}  {job.state}  {hours}:{seconds // 60:02d}:{seconds % 60:02d}"
    title += f"  attempt {job.attempt}" if job.attempt > 1 else ""
    title += f"  {usage(job, now, price).words}" if job.started_at else ""
    found = Table(box=None, pad_edge=False, header_style="bold")
    if job.tuning is not None:
        _add_trials(job.tuning, found)
        return Group(Text(title, style="bold"), found)
    for column in ("REPLICA", "STATE", "LIFE", "RESTARTS", "REPLACED", "WAITED FOR PEERS"):
        found.add_column(column)
    for each in state.replicas:
        counts = (each.incarnation, each.restarts_used, each.replaced, each.collateral)
        word = replica_word(each.state, has_ended=job.state.is_terminal)
        found.add_row(each.replica_id.words, word, *map(str, counts))
    return Group(Text(title, style="bold"), found)
