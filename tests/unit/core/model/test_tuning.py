"""Trials in the order of their results, ids of trials, and numbers as programs get them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.tuning_jobs import FAILED, RATE, RUNNING, SUCCEEDED, a_trial
from trainmaster.core.model.job import public_id
from trainmaster.core.model.search_space import format_number
from trainmaster.core.model.tuning import Goal, Tuning, trial_id, trial_number, tuning_job_id


def test_best_trials_come_first_and_those_without_a_metric_last() -> None:
    trials = (
        a_trial(1, SUCCEEDED, value=0.3),
        a_trial(2, FAILED),
        a_trial(3, SUCCEEDED, value=0.9),
        a_trial(4, RUNNING),
        a_trial(5, SUCCEEDED, value=0.3),
    )
    maximized = Tuning((RATE,), trials=trials)
    minimized = replace(maximized, goal=Goal.MINIMIZE)
    assert [trial.number for trial in maximized.best_first()] == [3, 1, 5, 2, 4]
    assert [trial.number for trial in minimized.best_first()] == [1, 5, 3, 2, 4]


def test_trial_id_contains_the_tuning_jobs_id_and_the_trials_number() -> None:
    assert trial_id("custom_123", 7) == "custom_123-trial-7"
    assert tuning_job_id("digits_1-trial-12") == "digits_1"
    assert (trial_number("digits_1-trial-12"), trial_number("digits_1")) == ("12", "")
    assert tuning_job_id("digits_trial_1") == "digits_trial_1"


def test_public_id_of_a_trial_is_that_of_its_tuning_job() -> None:
    assert (public_id("digits_1-trial-12"), public_id("custom_123-trial-7")) == ("digits_1", "123")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (0.5, "0.5"),
        (-3.0, "-3"),
        (1e-05, "1e-05"),
        (1e300, "1e+300"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_format_number_writes_whole_numbers_without_a_point(number: float, text: str) -> None:
    assert format_number(number) == text
    assert float(format_number(number)) == number
