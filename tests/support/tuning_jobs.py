"""Tuning jobs for tests of the rules, with one letter for each trial."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from tests.support.jobs import a_job, a_plan, a_tuning_spec, at
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.search_space import Parameter, ParameterKind, Scale
from trainmaster.core.model.tuning import Measurement, Trial, TrialState, Tuning

RATE: Final = Parameter("learning-rate", ParameterKind.DOUBLE, low=1e-4, high=0.1, scale=Scale.LOG)
LAYERS: Final = Parameter("layers", ParameterKind.INTEGER, low=1, high=3)

RUNNING: Final = "r"
SUCCEEDED: Final = "s"
FAILED: Final = "f"
_STATES: Final = {
    "q": TrialState.QUEUED,
    RUNNING: TrialState.RUNNING,
    SUCCEEDED: TrialState.SUCCEEDED,
    FAILED: TrialState.FAILED,
    "c": TrialState.CANCELLED,
}
"""Letter of a trial → its state."""


def a_trial(number: int, letter: str, value: float | None = None) -> Trial:
    """Return a trial in the state of this letter.

    A successful one measured `value`, else a tenth of its number.
    """
    state = _STATES[letter]
    measurement = (
        Measurement(number / 10 if value is None else value, 100) if letter == SUCCEEDED else None
    )
    return Trial(
        number,
        (str(number / 1000), str(number)),
        state,
        None if letter == "q" else at(number),
        at(50 + number) if state.is_terminal else None,
        measurement,
    )


def a_tuning_job(letters: str = "", state: JobState = JobState.RUNNING, **changes: object) -> Job:
    """Return a tuning job of at most 4 trials, 2 at once.

    `letters` are its trials: queued, running, succeeded, failed, cancelled. `changes` are fields of
    `Tuning`.
    """
    trials = tuple(a_trial(number, letter) for number, letter in enumerate(letters, start=1))
    tuning = Tuning(
        (RATE, LAYERS), trials=trials, max_trials=4, max_parallel=2, last_error="out of luck"
    )
    return a_job(
        state,
        a_plan(workers=0),
        spec_json=json.dumps(a_tuning_spec()),
        tuning=replace(tuning, **changes),  # type: ignore[arg-type]
    )
