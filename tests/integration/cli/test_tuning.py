"""Tuning jobs on the command line: list, describe, why, replay, wait."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.support.study import STUDY, Study, run_whole_study
from trainmaster.cli import wait
from trainmaster.cli.main import app


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    study = Study()
    for command in ("trainmaster.cli.why.open_store", "trainmaster.cli.jobs.open_store"):
        monkeypatch.setattr(command, lambda: study.store)
    monkeypatch.setattr("trainmaster.cli.why.losses_in_log", lambda _: ())
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    return study


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_contains_tuning_job_without_its_trials(study: Study) -> None:
    study.start_tuning()
    assert [line.split()[0] for line in run("jobs", "list").splitlines()] == ["JOB_ID", STUDY]


def test_describe_lists_trials_with_the_best_first(study: Study) -> None:
    run_whole_study(study)
    lines = run("jobs", "describe", STUDY).splitlines()
    table = lines[lines.index("TRIAL  STATE      ACCURACY  STEP  LAYERS  WIDTH") + 1 :]
    assert [line.split() for line in table] == [
        ["3", "SUCCEEDED", "0.3", "100", "2", "16"],
        ["2", "SUCCEEDED", "0.2", "100", "1", "32"],
        ["1", "SUCCEEDED", "0.1", "100", "1", "16"],
    ]


def test_describe_and_why_show_running_values_and_a_trial_that_was_stopped_early(
    study: Study,
) -> None:
    study.start_tuning(enableTrialEarlyStopping=True)
    study.report_ready(1, 2)
    study.write_metric(1, 0.25, -0.5)
    study.write_metric(2, 0.75)
    study.wait(60)
    study.sweep()
    study.deliver()
    described = run("jobs", "describe", STUDY)
    rows = [line.split() for line in described.splitlines()]
    assert ["1", "STOPPED", "-0.5", "200", "1", "16"] in rows
    assert ["2", "RUNNING", "0.75", "100", "1", "32"] in rows
    assert "substituted trainingInput.hyperparameters" not in described
    assert "Trial 1 is stopped early: -0.5 is negative.  [rule 13]" in run("why", STUDY)
    assert "entries lead to exactly the stored state" in run("replay", STUDY)


def test_why_explains_tuning_job_and_next_steps(study: Study) -> None:
    study.start_tuning()
    study.report_ready(1)
    explanation = run("why", STUDY)
    assert "Trial 1 begins: --layers 1 --width 16.  [rule 13]" in explanation
    assert "The first trial runs: the job is running." in explanation
    assert "Next: Trials under way: 1, 2; each is a job, such as digits_1-trial-1." in explanation
    assert "Next: 1 more trials may begin, at most 2 at once." in explanation
    for number in (1, 2, 3):
        study.report_ready(number)
        study.complete_trial(number, number / 10)
    assert (
        "All trials have ended, and 3 of 3 succeeded; the best is trial 3 with accuracy 0.3 at step"
        " 100." in run("why", STUDY)
    )


def test_why_of_trial_names_tuning_job_and_values(study: Study) -> None:
    study.start_tuning()
    study.report_ready(2)
    explanation = run("why", "digits_1-trial-2")
    assert explanation.startswith(
        "digits_1-trial-2 was submitted by digits_1, as its trial 2: --layers 1 --width 32.\n"
    )
    assert "chief 0 is ready on" in explanation


def test_replay_of_tuning_job_leads_to_stored_state(study: Study) -> None:
    run_whole_study(study)
    assert "entries lead to exactly the stored state" in run("replay", STUDY)


def test_wait_prints_each_change_of_a_trial(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    study.start_tuning(maxTrials=1)

    def advance(_: float) -> None:
        if study.states == ["QUEUED"]:
            study.report_ready(1)
        else:
            study.complete_trial(1, 0.5)

    assert wait.wait(STUDY, study.store, advance).job.state == "SUCCEEDED"
    assert [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")] == [
        "digits_1: PREPARING",
        "  trial 1: QUEUED",
        "digits_1: RUNNING",
        "  trial 1: RUNNING",
        "digits_1: SUCCEEDED",
        "  trial 1: SUCCEEDED, 0.5 at step 100",
    ]


def test_table_of_tuning_job_contains_best_and_live_trials(study: Study) -> None:
    study.start_tuning(maxTrials=6, maxParallelTrials=2)
    study.report_ready(1, 2)
    study.complete_trial(1, 0.5)
    loaded = study.store.load_attempt(STUDY)
    assert loaded is not None
    console = Console(width=100, record=True, file=StringIO())
    console.print(wait.job_table(loaded.state, study.now))
    lines = console.export_text().splitlines()
    assert lines[0].startswith("digits_1  RUNNING  0:00:0")
    assert [line.split() for line in lines[1:]] == [
        ["TRIAL", "STATE", "ACCURACY", "STEP", "LAYERS", "WIDTH"],
        ["1", "SUCCEEDED", "0.5", "100", "1", "16"],
        ["2", "RUNNING", "1", "32"],
        ["3", "QUEUED", "2", "16"],
    ]
