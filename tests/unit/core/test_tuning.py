"""A tuning job's rules: when trials begin, what became of them, when the job ends, and with which words."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from shared.core.cluster.environment import environment
from shared.core.cluster.tf_config import Cluster
from shared.core.decisions import FailJob, Reason, Rule
from shared.core.events import (
    AllReady,
    CancelRequested,
    Event,
    ProvisioningStarted,
    StudyOver,
    TrialEnded,
    TrialStarted,
    TrialSuggested,
)
from shared.core.evolve import apply, evolve
from shared.core.ledger import LedgerEntry, counters
from shared.core.model.job import Job, JobState, State, public_id
from shared.core.model.plan import Container, Dialect, Program, TaskGroup
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.tuning import (
    Goal,
    Measurement,
    Parameter,
    ParameterKind,
    Past,
    Scale,
    Trial,
    TrialState,
    Tuning,
    number_of,
    shown,
    study_of,
    trial_id,
)
from shared.core.reconcile.trial_jobs import found_by, job_of
from shared.core.reporting.job_log import Severity, lines_of
from shared.core.rules.admission_queue import waits
from shared.core.rules.judge import judge
from shared.core.rules.tuning import may_begin, planned
from tests.support.jobs import a_job, a_plan, a_tuning_spec, at

NOW = at(100)
RATE = Parameter("learning-rate", ParameterKind.DOUBLE, 1e-4, 0.1, scale=Scale.LOG)
LAYERS = Parameter("layers", ParameterKind.INTEGER, 1, 3)
MARKS = {"q": TrialState.QUEUED, "r": TrialState.RUNNING, "s": TrialState.SUCCEEDED, "f": TrialState.FAILED}
MARKS |= {"c": TrialState.CANCELLED}


def a_trial(number: int, mark: str, value: float | None = None) -> Trial:
    state = MARKS[mark]
    measurement = Measurement(number / 10 if value is None else value, 100) if mark == "s" else None
    return Trial(
        number,
        (str(number / 1000), str(number)),
        state,
        None if mark == "q" else at(number),
        at(50 + number) if state.is_terminal else None,
        measurement,
    )


def a_study(marks: str = "", state: JobState = JobState.RUNNING, **changes: object) -> Job:
    """A trial a letter: q queued, r running, s succeeded, f failed, c cancelled."""
    trials = tuple(a_trial(number, mark) for number, mark in enumerate(marks, start=1))
    tuning = Tuning((RATE, LAYERS), trials=trials, max_trials=4, max_parallel=2, last_error="out of luck")
    return a_job(
        state,
        a_plan(workers=0),
        spec_json=json.dumps(a_tuning_spec()),
        tuning=replace(tuning, **changes),  # type: ignore[arg-type]
    )


def suggested(number: int) -> TrialSuggested:
    return TrialSuggested("digits_1", number, ("0.01", "2"), NOW)


def ended(number: int, state: TrialState, value: float | None = None, error: str = "") -> TrialEnded:
    measurement = None if value is None else Measurement(value, 100)
    return TrialEnded("digits_1", number, state, at(60), NOW, measurement, error)


OVER = StudyOver("digits_1", NOW)


@dataclass(frozen=True)
class Case:
    story: str
    study: Job
    event: Event
    decision: str
    rule: Rule
    reason: Reason


CASES = (
    Case("the first trial begins", a_study(state=JobState.QUEUED), suggested(1), "begin_trial", Rule.TUNING, Reason.TRIAL_SUGGESTED),
    Case("where one has ended another one begins", a_study("sr"), suggested(3), "begin_trial", Rule.TUNING, Reason.TRIAL_SUGGESTED),
    Case("the same trial is not begun twice", a_study("s"), suggested(1), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("no number is left out", a_study("s"), suggested(3), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("no more than maxParallelTrials run", a_study("rq"), suggested(3), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("no more than maxTrials begin", a_study("ssss"), suggested(5), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("none begins in a job that is about to fail", a_study("f"), suggested(2), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("none begins in a job that has ended", a_study("s", JobState.CANCELLED), suggested(2), "ignore", Rule.STALE, Reason.JOB_ENDED),
    Case("a trial runs", a_study("q"), TrialStarted("digits_1", 1, at(20), NOW), "mark_trial_running", Rule.LIFECYCLE, Reason.TRIAL_RUNNING),
    Case("a trial runs already", a_study("r"), TrialStarted("digits_1", 1, at(20), NOW), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("a trial that has ended does not run", a_study("s"), TrialStarted("digits_1", 1, at(20), NOW), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("a trial succeeds", a_study("r"), ended(1, TrialState.SUCCEEDED, 0.5), "end_trial", Rule.TUNING, Reason.TRIAL_SUCCEEDED),
    Case("a trial succeeds without a word", a_study("r"), ended(1, TrialState.SUCCEEDED), "end_trial", Rule.TUNING, Reason.TRIAL_WITHOUT_METRIC),
    Case("a trial fails", a_study("r"), ended(1, TrialState.FAILED, error="why"), "end_trial", Rule.TUNING, Reason.TRIAL_FAILED),
    Case("a trial is cancelled", a_study("q"), ended(1, TrialState.CANCELLED), "end_trial", Rule.TUNING, Reason.TRIAL_CANCELLED),
    Case("a trial ends after its job", a_study("r", JobState.CANCELLED), ended(1, TrialState.CANCELLED), "end_trial", Rule.TUNING, Reason.TRIAL_CANCELLED),
    Case("a trial ends once", a_study("s"), ended(1, TrialState.FAILED), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("a trial that never began does not end", a_study("r"), ended(2, TrialState.FAILED), "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("all trials have ended", a_study("sfsc"), OVER, "complete_study", Rule.TUNING, Reason.TRIALS_DONE),
    Case("one trial is still to end", a_study("sfsr"), OVER, "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("one trial is still to begin", a_study("sfs"), OVER, "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("one fails before any other succeeded", a_study("rf"), OVER, "fail_job", Rule.TUNING, Reason.TOO_MANY_TRIALS_FAILED),
    Case("one fails after another succeeded", a_study("sfr"), OVER, "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("fewer fail than allowed", a_study("fr", max_failed=2), OVER, "ignore", Rule.STALE, Reason.NOTHING_TO_DO),
    Case("as many fail as allowed", a_study("fsf", max_failed=2), OVER, "fail_job", Rule.TUNING, Reason.TOO_MANY_TRIALS_FAILED),
    Case("all fail, and fewer than allowed", a_study("ffff", max_failed=9), OVER, "fail_job", Rule.TUNING, Reason.NO_TRIAL_SUCCEEDED),
    Case("all are cancelled", a_study("cccc"), OVER, "fail_job", Rule.TUNING, Reason.NO_TRIAL_SUCCEEDED),
    Case("the first trial's machines are made", a_study("q", JobState.QUEUED), ProvisioningStarted("digits_1", NOW), "begin_preparing", Rule.LIFECYCLE, Reason.PREPARING),
    Case("the first trial is up", a_study("q", JobState.PREPARING), AllReady("digits_1", 1, NOW), "begin_running", Rule.LIFECYCLE, Reason.ALL_READY),
    Case("the user cancels", a_study("r"), CancelRequested("digits_1", "me", NOW), "cancel_job", Rule.ENDED, Reason.CANCELLED_BY_USER),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_judge_says(case: Case) -> None:
    state = State(case.study, (), whole=True)
    decision = judge(state, case.event, NOW)
    assert (decision.kind, decision.rule, decision.reason) == (case.decision, case.rule, case.reason), decision.text
    assert decision.text
    evolve(state, decision, NOW)


def test_every_reason_of_tuning_is_in_the_table() -> None:
    of_tuning = {reason for reason in Reason if reason.name.startswith(("TRIAL", "TOO_MANY_TRIALS", "NO_TRIAL"))}
    assert {case.reason for case in CASES if case.rule in (Rule.TUNING, Rule.LIFECYCLE)} >= of_tuning


@pytest.mark.parametrize(
    ("marks", "count"),
    [("", 2), ("q", 1), ("qr", 0), ("s", 2), ("sss", 1), ("sssr", 0), ("f", 0), ("sf", 2), ("ssss", 0)],
)
def test_so_many_trials_may_begin(marks: str, count: int) -> None:
    assert may_begin(a_study(marks)) == count


def test_none_may_begin_in_a_job_that_has_ended() -> None:
    assert may_begin(a_study("", JobState.CANCELLED)) == 0


def test_a_space_with_an_end_is_left_when_all_of_it_was_tried_also_before() -> None:
    optimizer = Parameter("optimizer", ParameterKind.CATEGORICAL, choices=("adam", "sgd"))
    finite = Tuning((LAYERS, optimizer), max_trials=100)
    assert (finite.size, planned(finite)) == (6, 6)
    earlier = (Past(("1", "adam"), 0.5), Past(("1", "adam"), 0.6), Past(("3", "sgd"), 0.1))
    assert planned(replace(finite, earlier=earlier)) == 4
    assert planned(replace(finite, max_trials=5)) == 5
    assert planned(Tuning((LAYERS, RATE), max_trials=100)) == 100


def test_the_best_trials_come_first_and_those_without_a_metric_last() -> None:
    trials = (a_trial(1, "s", 0.3), a_trial(2, "f"), a_trial(3, "s", 0.9), a_trial(4, "r"), a_trial(5, "s", 0.3))
    most = Tuning((RATE,), trials=trials)
    assert [trial.number for trial in most.best_first()] == [3, 1, 5, 2, 4]
    assert [trial.number for trial in replace(most, goal=Goal.MINIMIZE).best_first()] == [1, 5, 3, 2, 4]


def decision_on(study: Job, event: Event = OVER) -> FailJob:
    decision = judge(State(study, (), whole=True), event, NOW)
    assert isinstance(decision, FailJob)
    return decision


def test_the_message_of_too_many_failures_is_the_services() -> None:
    """As in the sample that a user quoted, with its gap after the limit."""
    names = ("weight-decay", "lr", "optimizer")
    tuning = Tuning(
        tuple(Parameter(name, ParameterKind.CATEGORICAL, choices=("a",)) for name in names),
        max_trials=10,
        max_failed=5,
        trials=tuple(
            Trial(n, ("0.1", "0.01", "Adam"), TrialState.FAILED if n < 6 else TrialState.SUCCEEDED, at(n), at(60 + n))
            for n in range(1, 8)
        ),
        last_error="The replica master 0 exited with a non-zero status of 1.",
    )
    study = a_job(tuning=tuning)
    assert decision_on(study).message == (
        "Hyperparameter Tuning Trial #5 failed. 5 total hyperparameter trial failures were seen, out of 7 trials "
        "attempted which reaches the user-specified limit of 5.The last trial to fail was #5, with parameters: "
        "weight-decay=0.1, lr=0.01, optimizer=Adam, .  The trial's error message was: "
        "The replica master 0 exited with a non-zero status of 1."
    )


def test_the_error_is_that_of_the_trial_which_failed_last_in_whatever_order_that_is_told() -> None:
    state = State(a_study("rr", max_failed=2), (), whole=True)
    for number, minute in ((2, 70), (1, 60)):
        failed = TrialEnded("digits_1", number, TrialState.FAILED, at(minute), NOW, None, f"error of {number}")
        state = apply(state, evolve(state, judge(state, failed, NOW), NOW))
    message = decision_on(state.job).message
    assert "The last trial to fail was #2" in message
    assert message.endswith("error of 2")


def test_other_failures_name_the_trial_and_its_error_too() -> None:
    first = decision_on(a_study("rf")).message
    assert first.startswith("Hyperparameter Tuning Trial #2 failed before any other trial succeeded")
    assert first.endswith("learning-rate=0.002, layers=2, .  The trial's error message was: out of luck")
    assert (
        "out of 4 trials attempted. The last trial to fail was #4" in decision_on(a_study("ffff", max_failed=9)).message
    )
    assert decision_on(a_study("cccc")).message.endswith("out of 4 trials attempted.")


def test_the_last_to_fail_is_the_one_that_ended_last() -> None:
    study = a_study("ff", max_failed=2)
    assert study.tuning is not None
    late = replace(study.tuning.trials[0], ended_at=at(99))
    changed = replace(study, tuning=replace(study.tuning, trials=(late, study.tuning.trials[1])))
    assert "The last trial to fail was #1" in decision_on(changed).message


def test_a_tuning_job_needs_no_room_and_waits_for_none() -> None:
    waiting = a_job(JobState.QUEUED, job_id="other", created_at=at(5))
    assert waits([a_study("r"), waiting], {"vcpus": 12}) == ()
    assert waits([a_study(state=JobState.QUEUED)], {"vcpus": 1}) == ()


# What a trial is


def test_the_ids_of_trials_tell_whose_they_are() -> None:
    assert trial_id("custom_123", 7) == "custom_123-trial-7"
    assert study_of("digits_1-trial-12") == "digits_1"
    assert (number_of("digits_1-trial-12"), number_of("digits_1")) == ("12", "")
    assert study_of("digits_trial_1") == "digits_trial_1"
    assert (public_id("digits_1-trial-12"), public_id("custom_123-trial-7")) == ("digits_1", "123")


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.0, "1"), (0.5, "0.5"), (-3.0, "-3"), (1e-05, "1e-05"), (1e300, "1e+300"), (0.1 + 0.2, "0.30000000000000004")],
)
def test_numbers_are_shown_whole_where_they_are(number: float, text: str) -> None:
    assert shown(number) == text
    assert float(shown(number)) == number


def test_every_role_of_a_trial_gets_its_values_and_its_directory() -> None:
    own = Program((), "", ("--serve",), None, Container("image"))
    groups = (TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"), TaskGroup(TaskType.PS, 1, "n1-standard-4", program=own))
    study = replace(a_study("q"), plan=a_plan(groups=groups, output_directory="gs://b/out/"))
    job = job_of(study, Trial(3, ("0.01", "2")), NOW)
    flags = ("--learning-rate", "0.01", "--layers", "2")
    assert job.plan.program_of(TaskType.CHIEF).args == ("--epochs", "5", *flags)
    assert job.plan.program_of(TaskType.PS).args == ("--serve", *flags)
    assert job.plan.program_of(TaskType.CHIEF).job_dir == "gs://bucket/digits/3"
    assert job.plan.program_of(TaskType.PS).job_dir is None
    assert job.plan.output_directory == "gs://b/out/3"
    assert (job.job_id, job.spec_json, job.tuning) == ("digits_1-trial-3", study.spec_json, None)
    assert job.plan.max_wait_s is None, "once the tuning job runs, no trial waits too long"
    assert (job.plan.max_running_s, job.plan.zones) == (study.plan.max_running_s, study.plan.zones)


def test_whoever_makes_a_trial_makes_the_same() -> None:
    study = a_study("q")
    one, other = (job_of(study, Trial(1, ("0.01", "2")), moment) for moment in (at(1), at(2)))
    assert replace(other, created_at=one.created_at) == one


def a_trial_cluster(dialect: Dialect = Dialect.AI_PLATFORM) -> Cluster:
    study = a_study("q")
    study = replace(study, plan=replace(study.plan, dialect=dialect))
    return Cluster(
        job_of(study, Trial(1, ("0.01", "2")), NOW), "my-project", {ReplicaId(TaskType.CHIEF, 0): "chief:2222"}
    )


def test_tf_config_of_a_trial_is_the_documented_one_field_by_field() -> None:
    """Source: the service's documented TF_CONFIG: `trial` beside type, index (the agent's) and cloud."""
    config = a_trial_cluster().tf_config(TaskType.CHIEF)
    assert list(config) == ["cluster", "task", "job", "environment"]
    assert config["cluster"] == {"chief": ["127.0.0.1:2222"]}
    task = config["task"]
    assert isinstance(task, dict)
    assert set(task) == {"type", "trial", "cloud"}
    assert (task["type"], task["trial"]) == ("chief", "1")
    assert task["cloud"].endswith("-ml")
    assert config["environment"] == "cloud"
    job = config["job"]
    assert isinstance(job, dict)
    assert job["hyperparameters"] == {
        "goal": "MAXIMIZE",
        "params": [
            {"parameter_name": "layers", "type": "INTEGER", "min_value": 1, "max_value": 3},
            {"parameter_name": "width", "type": "DISCRETE", "discrete_values": [16, 32]},
        ],
        "max_trials": 3,
        "max_parallel_trials": 2,
        "hyperparameter_metric_tag": "accuracy",
    }
    assert job["args"] == ["--epochs", "5"], "the job as it was submitted"


@pytest.mark.parametrize("dialect", Dialect)
def test_cluster_spec_of_a_trial_has_its_number(dialect: Dialect) -> None:
    task = a_trial_cluster(dialect).cluster_spec(TaskType.CHIEF)["task"]
    assert isinstance(task, dict)
    assert task["trial"] == "1"


@pytest.mark.parametrize("dialect", Dialect)
def test_a_trial_finds_its_number_its_metric_and_its_tuning_jobs_id(dialect: Dialect) -> None:
    found = environment(a_trial_cluster(dialect), TaskType.CHIEF, "us-central1-a", ("tm-digits-chief-0",))
    assert found["CLOUD_ML_JOB_ID"] == "digits_1"
    assert found["CLOUD_ML_TRIAL_ID"] == "1"
    assert found["CLOUD_ML_HP_METRIC_TAG"] == "training/hptuning/metric"
    assert "CLOUD_ML_HP_METRIC_FILE" not in found, "the agent's"


def test_what_a_study_found_is_what_the_next_one_begins_with() -> None:
    tuning = a_study("sfs", earlier=(Past(("0.5", "1"), 0.7),)).tuning
    assert tuning is not None
    assert found_by(tuning) == (Past(("0.5", "1"), 0.7), Past(("0.001", "1"), 0.1), Past(("0.003", "3"), 0.3))


def test_of_more_than_fits_a_ledger_entry_the_latest_are_known() -> None:
    long = Parameter("prompt", ParameterKind.CATEGORICAL, choices=("x" * 9_998, "y" * 9_998))
    tuning = Tuning((long,), earlier=tuple(Past((long.choices[nth % 2],), nth / 100) for nth in range(30)))
    assert [past.value for past in found_by(tuning)] == [nth / 100 for nth in range(10, 30)]


# What the log says


def an_entry(study: Job, event: Event) -> LedgerEntry:
    state = State(study, (), whole=True)
    decision = judge(state, event, NOW)
    return LedgerEntry(study.job_id, event.key, NOW, event, decision, counters(state, None), counters(state, None))


@pytest.mark.parametrize(
    ("event", "severity", "message"),
    [
        (suggested(2), Severity.INFO, "Trial 2 begins: --learning-rate 0.01 --layers 2."),
        (ended(1, TrialState.SUCCEEDED, 0.5), Severity.INFO, "Trial 1 succeeded with training/hptuning/metric 0.5 at step 100."),
        (ended(1, TrialState.SUCCEEDED), Severity.WARNING, "Trial 1 succeeded, but its program reported no training/hptuning/metric: nothing was learned from it."),
        (ended(1, TrialState.FAILED, error="The replica exited. \nTraceback"), Severity.WARNING, "Trial 1 failed: The replica exited."),
    ],
)  # fmt: skip
def test_the_service_tells_each_trial_in_one_line(event: Event, severity: Severity, message: str) -> None:
    (line,) = lines_of(an_entry(a_study("r"), event))
    assert (line.severity, line.message) == (severity, message)


def test_the_end_of_a_study_is_told_as_any_jobs_with_its_best_trial() -> None:
    said = [line.message for line in lines_of(an_entry(a_study("ssss"), OVER))]
    best = "All trials have ended, 4 of 4 well; best is trial 4 with training/hptuning/metric 0.4 at step 100."
    assert said == [best, "Tearing down training program.", "Job completed successfully."]
