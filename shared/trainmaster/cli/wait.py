"""Wait for the end of a job, with a live table at a terminal, or else a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from trainmaster.cli.job_output import find_job, trial_table
from trainmaster.cli.metrics import read_metrics
from trainmaster.cli.output import complain, fitted_table, literal_text, replica_state_word
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.members import state_word
from trainmaster.core.model.money import Money
from trainmaster.core.model.tuning import Trial, Tuning
from trainmaster.errors import TemporaryError
from trainmaster.ports import Store
from trainmaster.presentation.durations import HOUR_S, MINUTE_S
from trainmaster.presentation.failing import failing_of
from trainmaster.presentation.ml_units import usage
from trainmaster.presentation.progress import Progress, read_progress
from trainmaster.presentation.quiet import Quiet, read_quiet
from trainmaster.settings import settings

if TYPE_CHECKING:
    from rich.console import Group

POLL_S: Final = 1.0
"""Time between two reads of the job."""
PROGRESS_S: Final = 60.0
"""Time between two readings of the job's progress, which agents report as often."""
FAILED: Final = 1
"""Exit status for a job that did not succeed."""
BEST_TRIALS_SHOWN: Final = 10


def wait(
    job_id: str,
    store: Store,
    sleep: Callable[[float], None] = time.sleep,
    progress: Callable[[Job], str] = lambda _: "",
) -> State:
    """Wait until the job has ended, and return its state.

    `progress` returns how far a job that runs is, in words.

    Shows the progress on standard error: standard output is for the result. Retries transient
    errors. Raises PermanentError if there is no such job.
    """
    with _progress_display() as show:
        while True:
            try:
                state = find_job(store, job_id)
            except TemporaryError as error:
                complain(f"retrying: {error}")
                sleep(POLL_S)
                continue
            show(state, progress(state.job))
            if state.job.state.is_terminal:
                return state
            sleep(POLL_S)


def exit_status(state: State) -> int:
    """Return 0 if the job SUCCEEDED, otherwise 1, as gcloud does."""
    return 0 if state.job.state is JobState.SUCCEEDED else FAILED


@contextmanager
def _progress_display() -> Iterator[Callable[[State, str], None]]:
    """Yield the function that shows a job's state and its progress in words."""
    if not sys.stderr.isatty():
        yield _LineDisplay().show
        return
    from rich.console import Console
    from rich.live import Live

    price = settings().ml_unit_price
    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda state, progress: live.update(
            job_table(state, datetime.now(UTC), price, progress), refresh=True
        )


class ProgressReader:
    """Reads how far the program is, at most once per `PROGRESS_S`.

    What cannot be read is left out.
    """

    def __init__(self) -> None:
        self._next_at = float("-inf")
        self._progress: Progress | None = None
        self._quiet: Quiet | None = None

    def words(self, job: Job) -> str:
        """Return the progress in words; empty if the job does not run, or nothing is known."""
        if job.state is not JobState.RUNNING:
            return ""
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + PROGRESS_S
            self._progress = read_metrics(read_progress, job, what="", warn=lambda _: None)
            self._quiet = read_metrics(read_quiet, job, what="", warn=lambda _: None)
        now = datetime.now(UTC)
        words = [f"the program {self._quiet.words(now)}"] if self._quiet else []
        words += [self._progress.words(now)] if self._progress else []
        return "; ".join(words)


class _LineDisplay:
    """Prints a line for each change of the job, a replica, a trial or the program's progress."""

    def __init__(self) -> None:
        self._progress = ""
        self._failing = ""
        self._job_state = ""
        self._shown: dict[str, str] = {}
        """By replica or trial, its line that was printed last."""

    def show(self, state: State, progress: str = "") -> None:
        if state.job.state != self._job_state:
            self._job_state = state.job.state
            complain(f"{state.job.job_id}: {state.job.state}")
        if state.job.tuning:
            for trial in state.job.tuning.trials:
                name = f"trial {trial.number}"
                self._show_change(name, f"{name}: {_trial_words(trial)}")
        if not state.job.state.is_terminal:
            for replica in state.replicas:
                word = state_word(state.job, replica)
                if replica.incarnation > 1:  # its program was started again
                    word += f" (incarnation {replica.incarnation})"
                self._show_change(replica.key, f"{replica.replica_id.words}: {word}")
        failing = failing_of(state.job, state.replicas, datetime.now(UTC))
        words = f"{failing.words}. {failing.next_step}" if failing else ""
        if words and words != self._failing:
            complain(f"  {words}")
        self._failing = words
        known, _, _ = progress.partition(";")  # without its age, which always changes
        if known and known != self._progress:
            self._progress = known
            complain(f"  progress: {known}")

    def _show_change(self, key: str, text: str) -> None:
        if self._shown.get(key) != text:
            self._shown[key] = text
            complain(f"  {text}")


def _trial_words(trial: Trial) -> str:
    if trial.latest is None:
        return trial.state
    return f"{trial.state}, {trial.latest.value:g} at step {trial.latest.step}"


def job_table(
    state: State, now: datetime, ml_unit_price: Money | None = None, progress: str = ""
) -> Group:
    """Return a table of the replicas or trials, below the job's state, age, usage and progress."""
    from rich.console import Group
    from rich.text import Text

    job = state.job
    age = (job.ended_at or now) - job.created_at
    hours, seconds = divmod(int(age.total_seconds()), HOUR_S)
    minutes, seconds = divmod(seconds, MINUTE_S)
    title = f"{job.job_id}  {job.state}  {hours}:{minutes:02d}:{seconds:02d}"
    if job.attempt > 1:
        title += f"  attempt {job.attempt}"
    if job.started_at:
        title += f"  {usage(job, now, ml_unit_price).words}"
    if job.tuning:
        columns, rows = trial_table(job.tuning, _shown_trials(job.tuning))
    else:
        columns, rows = _replica_table(state)
    lines = [literal_text(progress)] if progress else []
    if failing := failing_of(job, state.replicas, now):
        lines.append(Text(f"{failing.words}. {failing.next_step}", style="yellow"))
    return Group(Text(title, style="bold"), *lines, fitted_table(columns, rows))


def _shown_trials(tuning: Tuning) -> list[Trial]:
    """Return the best trials and the live ones: all of them may be a thousand."""
    best = tuning.best_first()[:BEST_TRIALS_SHOWN]
    return [*best, *(trial for trial in tuning.live if trial not in best)]


def _replica_table(state: State) -> tuple[list[str], list[list[str]]]:
    rows = []
    for replica in state.replicas:
        counts = (replica.incarnation, replica.restarts_used, replica.replaced)
        word = replica_state_word(
            state_word(state.job, replica), job_has_ended=state.job.state.is_terminal
        )
        rows.append([replica.replica_id.words, word, *map(str, counts)])
    return ["replica", "state", "incarnation", "restarts", "replaced"], rows
