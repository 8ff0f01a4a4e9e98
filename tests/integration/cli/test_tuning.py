"""Tuning jobs at the terminal: listed, described with their trials, and why."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cli import wait
from cli.main import app
from tests.support.study import STUDY, Study, a_whole_study


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    study = Study()
    for command in ("cli.why.open_store", "cli.jobs.open_store"):
        monkeypatch.setattr(command, lambda: study.store)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    return study


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_list_has_the_tuning_job_and_none_of_its_trials(study: Study) -> None:
    study.begin()
    assert [line.split()[0] for line in run("jobs", "list").splitlines()] == ["JOB_ID", STUDY]


def test_describe_has_a_table_of_the_trials_the_best_first(study: Study) -> None:
    a_whole_study(study)
    told = run("jobs", "describe", STUDY).splitlines()
    table = told[told.index("TRIAL  STATE      ACCURACY  STEP  LAYERS  WIDTH") + 1 :]
    assert [line.split() for line in table] == [
        ["3", "SUCCEEDED", "0.3", "100", "2", "16"],
        ["2", "SUCCEEDED", "0.2", "100", "1", "32"],
        ["1", "SUCCEEDED", "0.1", "100", "1", "16"],
    ]


def test_describe_says_that_trials_are_not_stopped_early(study: Study) -> None:
    study.begin(enableTrialEarlyStopping=True)
    assert "hyperparameters.enableTrialEarlyStopping: true -> false (trials are not stopped early" in run(
        "jobs", "describe", STUDY
    )


def test_why_tells_the_story_of_a_tuning_job_and_what_comes_next(study: Study) -> None:
    study.begin()
    study.up(1)
    told = run("why", STUDY)
    assert "Trial 1 begins: --layers 1 --width 16.  [rule 13]" in told
    assert "The first trial runs: the job is running." in told
    assert "Next: Trials under way: 1, 2; each is a job, such as digits_1-trial-1." in told
    assert "Next: 1 more trials may begin, at most 2 at once." in told
    for number in (1, 2, 3):
        study.up(number)
        study.done(number, number / 10)
    assert "All trials have ended, 3 of 3 well; best is trial 3 with accuracy 0.3 at step 100." in run("why", STUDY)


def test_why_of_a_trial_is_that_of_a_job_with_its_values(study: Study) -> None:
    study.begin()
    study.up(2)
    told = run("why", "digits_1-trial-2")
    assert told.startswith("digits_1-trial-2 was submitted by digits_1, as its trial 2: --layers 1 --width 32.\n")
    assert "chief 0 is up" in told


def test_replay_folds_the_ledger_of_a_tuning_job(study: Study) -> None:
    a_whole_study(study)
    assert "entries lead to exactly what is stored" in run("replay", STUDY)


def test_waiting_tells_each_trial_as_it_goes_on(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    study.begin(maxTrials=1)

    def meanwhile(_: float) -> None:
        if study.states == ["QUEUED"]:
            study.up(1)
        else:
            study.done(1, 0.5)

    assert wait.wait(STUDY, study.store, meanwhile).job.state == "SUCCEEDED"
    assert [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")] == [
        "digits_1: PREPARING",
        "  trial 1: QUEUED",
        "digits_1: RUNNING",
        "  trial 1: RUNNING",
        "digits_1: SUCCEEDED",
        "  trial 1: SUCCEEDED, 0.5",
    ]


def test_a_terminal_shows_the_best_trials_and_those_under_way(study: Study) -> None:
    study.begin(maxTrials=6, maxParallelTrials=2)
    study.up(1, 2)
    study.done(1, 0.5)
    loaded = study.store.load_attempt(STUDY)
    assert loaded is not None
    console = Console(width=100, record=True, file=StringIO())
    console.print(wait.table(loaded.state, study.now))
    lines = console.export_text().splitlines()
    assert lines[0].startswith("digits_1  RUNNING  0:00:0")
    assert [line.split() for line in lines[1:]] == [
        ["TRIAL", "STATE", "ACCURACY", "LAYERS", "WIDTH"],
        ["1", "SUCCEEDED", "0.5", "1", "16"],
        ["2", "RUNNING", "1", "32"],
        ["3", "QUEUED", "2", "16"],
    ]
