"""Whole courses of a tuning job: each trial is a job of its own, through the real flows and the sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from shared.core.decisions import Reason
from shared.core.events import CancelRequested, StudyOver, TrialEnded, TrialSuggested
from shared.core.model.tuning import Trial, TrialState, Tuning
from shared.errors import PermanentError, TemporaryError
from shared.flows import delete, provision, tune
from shared.flows.record import Deps, record
from shared.memory.bus import MemoryBus, Message
from shared.memory.store import MemoryStore
from shared.messaging import agent_messages, internal_requests, topics
from shared.ports import Bus, Store
from tests.support.jobs import CHIEF, a_spec, a_tuning_spec
from tests.support.study import STUDY, Study, a_whole_study
from tests.support.world import World


@pytest.fixture
def study() -> Study:
    return Study()


def test_a_tuning_job_goes_from_submitted_to_succeeded_and_leaves_no_vm(study: Study) -> None:
    study.submit(a_tuning_spec())
    assert (study.state, study.replicas, study.states) == ("QUEUED", (), [])
    study.deliver()
    assert study.state == "PREPARING", "as its first trial is"
    assert study.states == ["QUEUED", "QUEUED"], "maxParallelTrials"
    assert len(study.fleet.list_all()) == 2
    study.up(1)
    assert (study.state, study.states) == ("RUNNING", ["RUNNING", "QUEUED"])
    study.up(2)
    study.done(2, 0.5)
    assert study.states == ["RUNNING", "SUCCEEDED", "QUEUED"], "where one ended the next begins"
    study.done(1, 0.9)
    study.up(3)
    assert study.state == "RUNNING"
    study.done(3, 0.7)
    assert study.state == "SUCCEEDED"
    assert [trial.number for trial in study.tuning.best_first()] == [1, 3, 2]
    assert [trial.measurement.value for trial in study.tuning.trials if trial.measurement] == [0.9, 0.5, 0.7]
    assert study.job.ended_at == study.now
    study.sweep()
    study.deliver()
    assert study.fleet.list_all() == ()
    assert study.store.jobs_with_pending() == ()
    study.check()


def test_a_trial_is_the_job_with_its_values_as_flags_and_a_directory_of_its_own(study: Study) -> None:
    study.begin()
    job = study.trial(2).job
    program = job.plan.program
    assert program.args == ("--epochs", "5", "--layers", "1", "--width", "32")
    assert program.job_dir == "gs://bucket/digits/2"
    assert job.trial_of is not None
    assert (job.trial_of.job_id, job.trial_of.number, job.trial_of.metric_tag) == (STUDY, 2, "accuracy")
    assert job.labels == study.job.labels
    vm = study.trial(2).vm(CHIEF)
    assert vm is not None
    gang = json.loads(study.fleet.metadata(vm.name)["trainmaster-vm-config"])
    assert gang["job_id"] == "digits_1-trial-2", "what the agent's events name"
    assert gang["environment"]["CLOUD_ML_JOB_ID"] == STUDY
    assert gang["environment"]["CLOUD_ML_TRIAL_ID"] == "2"
    assert gang["environment"]["CLOUD_ML_HP_METRIC_TAG"] == "accuracy"
    assert gang["tf_config"]["task"]["trial"] == "2"
    assert gang["tf_config"]["job"]["hyperparameters"]["max_trials"] == 3


def test_every_message_delivered_twice_is_the_same_study(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = MemoryBus.publish

    def twice(self: MemoryBus, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        publish(self, topic, data, attributes)
        publish(self, topic, data, attributes)

    monkeypatch.setattr(MemoryBus, "publish", twice)
    a_whole_study(study)
    assert [entry.key for entry in study.ledger if entry.key.startswith("trial")] == [
        f"trial-{number}-{what}"
        for number, what in (
            (1, "suggested-0"), (2, "suggested-0"), (1, "running"), (1, "ended"), (3, "suggested-1"),
            (2, "running"), (2, "ended"), (3, "running"), (3, "ended"),
        )
    ]  # fmt: skip


HUGE = '{"value": 1, "step": 1' + 30 * "0" + "}"


@dataclass
class Died(BaseException):
    """The function's process ended between two calls."""

    after: str


@dataclass
class Mortal:
    """A port whose caller dies right after its nth call that changes anything."""

    port: object
    mortality: list[int]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.port, name)

        def call(*arguments: object, **named: object) -> object:
            answer = method(*arguments, **named)
            if name in ("commit", "publish", "mark_done"):
                self.mortality[0] -= 1
                if self.mortality[0] == 0:
                    raise Died(name)
            return answer

        return call


@dataclass
class Fragile(Study):
    """The nth effect of all its functions together is the last one of the function that has it."""

    dies_after: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._mortality = [self.dies_after]

    @property
    def deps(self) -> Deps:
        whole = super().deps
        store, bus = Mortal(self.store, self._mortality), Mortal(self.bus, self._mortality)
        return Deps(cast("Store", store), cast("Bus", bus), whole.clock, whole.sleep, limits=self.limits)

    def trial(self, number: int) -> World:
        trial = super().trial(number)
        trial.__class__ = Fragile
        trial._mortality = self._mortality  # type: ignore[attr-defined]
        return trial

    def submit(self, spec: dict[str, object] | None = None, source: str | None = "gs://b/jobs/digits.yaml#1") -> None:
        self.surviving(lambda: super(Fragile, self).submit(spec, source))

    def tell(self, kind: str, replica_id: Any, **more: object) -> None:
        self.surviving(lambda: super(Fragile, self).tell(kind, replica_id, **more))

    def surviving(self, deliver: Callable[[], None]) -> None:
        """As Pub/Sub: what was not acknowledged is delivered again."""
        try:
            deliver()
        except Died:
            deliver()

    def deliver(self) -> None:
        """And the sweep after, for what only it finds."""
        self._drain()
        self.surviving(self.sweep)
        self._drain()

    def _drain(self) -> None:
        while message := self.bus.take():
            self.surviving(lambda message=message: self._handle(message))  # type: ignore[misc]

    def _handle(self, message: Message) -> None:
        if message.topic == topics.TUNE:
            tune.handle(internal_requests.decode_tune(message.data), self.suggester, self.deps)
        elif message.data != internal_requests.encode_orphan_search():
            provision.handle(internal_requests.decode_provision(message.data), self.machines, self.deps)


@pytest.mark.parametrize("after", range(1, 120))
def test_whoever_dies_after_whatever_effect_the_study_is_the_same(after: int) -> None:
    study = Fragile(dies_after=after)
    a_whole_study(study)
    assert [trial.values for trial in study.tuning.trials] == [("1", "16"), ("1", "32"), ("2", "16")]


def test_there_are_fewer_effects_than_deaths_in_the_test_above() -> None:
    study = Fragile(dies_after=1000)
    a_whole_study(study)
    assert 1000 - study._mortality[0] < 120


def without(study: Study, topic: str) -> None:
    """Every message of that topic is lost."""
    kept = [message for message in study.bus.drain() if message.topic != topic]
    for message in kept:
        study.bus.publish(message.topic, message.data, message.attributes)


def test_the_sweep_finds_a_tuning_job_whose_message_was_lost(study: Study) -> None:
    study.submit(a_tuning_spec())
    study.bus.drain()
    study.sweep()
    study.deliver()
    assert study.states == ["QUEUED", "QUEUED"]


def test_the_sweep_finds_trials_that_ended_without_the_tuning_job_hearing_of_it(study: Study) -> None:
    study.begin()
    study.up(1, 2)
    study.tell_of(1, "replica-exit", cause="process", exit_status=0, metric={"value": 0.5})
    without(study, topics.TUNE)
    study.deliver()
    assert study.states == ["RUNNING", "RUNNING"]
    study.sweep()
    study.deliver()
    assert study.states == ["SUCCEEDED", "RUNNING", "QUEUED"]
    study.check()


def test_the_sweep_finds_a_trial_that_was_chosen_and_whose_job_was_never_made(study: Study) -> None:
    study.submit(a_tuning_spec())
    study.bus.drain()
    record(STUDY, TrialSuggested(STUDY, 1, ("3", "32"), study.now), study.deps)
    assert study.store.load("digits_1-trial-1") is None
    study.sweep()
    study.deliver()
    assert study.trial(1).job.plan.program.args[2:] == ("--layers", "3", "--width", "32"), "as the ledger says"
    assert study.states == ["QUEUED", "QUEUED"]
    study.check()


def test_of_two_that_choose_the_same_trial_one_is_heard_and_both_make_its_job(study: Study) -> None:
    """The other one runs between a suggestion and its commit."""
    study.submit(a_tuning_spec(maxParallelTrials=1))
    study.bus.drain()

    class Rival:
        def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
            study.suggester = Others()
            tune.handle(STUDY, study.suggester, study.deps)
            return ("1", "16")

    class Others:
        def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
            return ("3", "32")

    tune.handle(STUDY, Rival(), study.deps)
    assert [trial.values for trial in study.tuning.trials] == [("3", "32")]
    assert study.trial(1).job.plan.program.args[-1] == "32"
    study.check()


def told(number: int, state: TrialState, study: Study) -> None:
    record(STUDY, TrialEnded(STUDY, number, state, study.now, study.now), study.deps)


def begun_by_hand(study: Study) -> None:
    study.submit(a_tuning_spec(maxTrials=3, maxParallelTrials=3))
    study.bus.drain()
    for number, width in ((1, "16"), (2, "32")):
        record(STUDY, TrialSuggested(STUDY, number, ("1", width), study.now), study.deps)


def test_a_suggestion_that_came_at_the_wrong_moment_is_made_again(study: Study) -> None:
    """Between a first trial's failure, which ends the job, and another's success, told by somebody else."""
    begun_by_hand(study)
    told(1, TrialState.FAILED, study)
    late = record(STUDY, TrialSuggested(STUDY, 3, ("2", "16"), study.now), study.deps)
    assert late.entry.decision.reason is Reason.NOTHING_TO_DO
    told(2, TrialState.SUCCEEDED, study)
    study.sweep()
    study.deliver()
    assert study.states == ["FAILED", "SUCCEEDED", "QUEUED"]


def test_an_end_that_was_told_at_the_wrong_moment_is_told_again(study: Study) -> None:
    """Of a job whose first trial had failed, when another had succeeded meanwhile."""
    begun_by_hand(study)
    told(1, TrialState.FAILED, study)
    told(2, TrialState.SUCCEEDED, study)
    late = record(STUDY, StudyOver(STUDY, study.now, ended=1), study.deps)
    assert late.entry.decision.reason is Reason.NOTHING_TO_DO
    study.sweep()
    study.deliver()
    study.up(3)
    study.done(3, 0.5)
    assert study.state == "SUCCEEDED"


def test_a_cancelled_tuning_job_ends_its_trials_and_what_became_of_them_is_told(study: Study) -> None:
    study.begin()
    study.up(1)
    record(STUDY, CancelRequested(STUDY, "me", study.now), study.deps)
    assert study.state == "CANCELLED"
    study.deliver()
    assert study.states == ["CANCELLED", "CANCELLED"]
    assert [study.trial(number).state for number in (1, 2)] == ["CANCELLED", "CANCELLED"]
    study.sweep()
    study.deliver()
    assert study.fleet.list_all() == ()
    assert study.store.jobs_with_pending() == ()
    assert study.store.live_jobs() == ()
    study.check()


def test_a_cancellation_whose_message_is_lost_is_found_by_the_sweep(study: Study) -> None:
    study.begin()
    record(STUDY, CancelRequested(STUDY, "me", study.now), study.deps)
    study.bus.drain()
    study.sweep()
    study.deliver()
    assert study.store.live_jobs() == ()


def test_a_trial_that_is_made_after_its_tuning_job_was_cancelled_is_cancelled(study: Study) -> None:
    """Chosen before, made after: by one who read the tuning job while it ran."""
    study.submit(a_tuning_spec(maxParallelTrials=1))
    study.bus.drain()
    real = study.store
    late: list[str] = []

    class Slow(MemoryStore):
        """Between the suggestion's commit and the making of its job, the user cancels and that is carried out."""

        def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Any:
            if job_id == "digits_1-trial-1" and not late:
                late.append(job_id)
                study.store = real
                record(STUDY, CancelRequested(STUDY, "me", study.now), study.deps)
                tune.handle(STUDY, study.suggester, study.deps)
                assert study.trial(1).state == "CANCELLED", "made, so that nobody can make it, and cancelled"
                return None
            return real.load(job_id, replica, lost_peers=lost_peers)

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) if name == "load" else getattr(real, name)

    study.store = Slow()
    deps = study.deps
    tune.handle(STUDY, study.suggester, deps)
    assert late
    study.deliver()
    assert study.store.live_jobs() == ()
    assert study.fleet.list_all() == ()
    assert study.states == ["CANCELLED"]
    study.check()


def test_the_running_time_of_the_tuning_job_ends_its_trials(study: Study) -> None:
    study.submit(a_tuning_spec({"scheduling": {"maxRunningTime": "600s"}}))
    study.deliver()
    study.up(1)
    study.wait(300)
    study.up(2)
    study.wait(301)
    study.sweep()
    study.deliver()
    assert study.state == "CANCELLED"
    assert study.job.error_message == "Job was cancelled for exceeding the maximum allowed duration of 600 seconds."
    assert study.states == ["CANCELLED", "CANCELLED"]


def test_as_many_failed_trials_as_allowed_fail_the_job_and_end_the_rest(study: Study) -> None:
    study.begin(maxTrials=6, maxParallelTrials=3, maxFailedTrials=2)
    study.up(1, 2, 3)
    study.failed(2)
    assert study.states == ["RUNNING", "FAILED", "RUNNING", "QUEUED"]
    study.failed(1)
    assert study.state == "FAILED"
    assert study.job.error_message == (
        "Hyperparameter Tuning Trial #1 failed. 2 total hyperparameter trial failures were seen, out of 4 trials "
        "attempted which reaches the user-specified limit of 2.The last trial to fail was #1, with parameters: "
        "layers=1, width=16, .  The trial's error message was: The replica chief 0 could not install its packages "
        "(status 1). \nno such package"
    )
    assert study.states == ["FAILED", "FAILED", "CANCELLED", "CANCELLED"]
    study.check()


def test_without_a_limit_a_failure_ends_the_job_only_before_the_first_success(study: Study) -> None:
    study.begin(maxTrials=4, maxParallelTrials=2)
    study.up(1, 2)
    study.done(1, 0.1)
    for number in (2, 3, 4):
        study.up(number)
        study.failed(number)
    assert study.states == ["SUCCEEDED", "FAILED", "FAILED", "FAILED"]
    assert study.state == "SUCCEEDED"
    other = Study()
    other.begin()
    other.up(1, 2)
    other.failed(2)
    assert other.state == "FAILED"
    assert (other.job.error_message or "").startswith("Hyperparameter Tuning Trial #2 failed before any other")
    assert other.states == ["CANCELLED", "FAILED"]


def test_a_trial_without_a_metric_succeeds_and_the_ledger_says_what_is_missing(study: Study) -> None:
    study.begin(maxTrials=1)
    study.up(1)
    study.done(1)
    assert study.state == "SUCCEEDED"
    ended = next(entry for entry in study.ledger if entry.key == "trial-1-ended")
    assert ended.decision.reason is Reason.TRIAL_WITHOUT_METRIC
    assert "reported no accuracy" in ended.decision.text


def test_the_metric_of_an_earlier_life_stands_where_the_last_one_reports_none(study: Study) -> None:
    study.begin(maxTrials=1)
    study.up(1)
    study.tell_of(1, "replica-exit", cause="process", exit_status=1, metric={"value": 0.25, "step": 7})
    study.deliver()
    study.up(1)
    study.done(1)
    measurement = study.tuning.trials[0].measurement
    assert measurement is not None
    assert (measurement.value, measurement.step) == (0.25, 7)
    study.check()


@pytest.mark.parametrize(
    "metric", ['{"value": NaN}', '{"value": "high"}', '{"value": 1e999}', "17", '{"step": 1}', HUGE]
)
def test_a_metric_that_is_none_keeps_no_exit_from_being_judged(study: Study, metric: str) -> None:
    study.begin(maxTrials=1)
    study.up(1)
    subject = json.dumps({**study.trial(1).subject(CHIEF), "cause": "process", "exit_status": 0, "metric": "METRIC"})
    assert agent_messages.decode_replica_exit(subject.replace('"METRIC"', metric).encode()).measurement is None


def test_a_space_with_an_end_is_over_when_all_of_it_was_tried(study: Study) -> None:
    study.begin(maxTrials=100, maxParallelTrials=10)
    assert len(study.tuning.trials) == 6
    for number in range(1, 7):
        study.up(number)
        study.done(number, 0.5)
    assert study.state == "SUCCEEDED"


def test_a_study_goes_on_where_another_one_ended(study: Study) -> None:
    a_whole_study(study)
    again = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    again.submit(a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9), source="b")
    again.deliver()
    assert [(past.values, past.value) for past in again.tuning.earlier] == [
        (("1", "16"), 0.1),
        (("1", "32"), 0.2),
        (("2", "16"), 0.3),
    ]
    assert [trial.values for trial in again.tuning.trials] == [("2", "32"), ("3", "16")], "the next, from number 1 on"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (a_tuning_spec(resumePreviousJobId="nobody"), "names nobody, which is no tuning job"),
        (a_tuning_spec(resumePreviousJobId="plain"), "names plain, which is no tuning job"),
        (a_tuning_spec(resumePreviousJobId=STUDY, goal="MINIMIZE"), "which has other params, another goal"),
    ],
)
def test_what_cannot_be_continued_is_refused_by_its_field(study: Study, spec: dict[str, object], said: str) -> None:
    World("plain", store=study.store, bus=study.bus).submit()
    a_whole_study(study)
    again = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    with pytest.raises(PermanentError, match=said) as caught:
        again.submit(spec, source="b")
    assert "training_input.hyperparameters.resume_previous_job_id" in str(caught.value)


def test_a_study_that_is_submitted_twice_is_one_though_what_it_continues_was_deleted_meanwhile(study: Study) -> None:
    a_whole_study(study)
    again = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    spec = a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9)
    again.submit(spec, source="b")
    assert delete.handle(STUDY, "request-1", study.deps)
    again.submit(spec, source="b")
    assert len(again.tuning.earlier) == 3
    assert study.store.rejections() == ()


def test_trials_wait_in_line_like_any_job_and_the_tuning_job_takes_no_place(study: Study) -> None:
    study.limits = {"vcpus": 4}
    study.begin(maxTrials=2)
    assert [study.trial(number).state for number in (1, 2)] == ["PREPARING", "QUEUED"]
    study.up(1)
    study.done(1, 0.5)
    study.sweep()
    study.deliver()
    assert study.trial(2).state == "PREPARING"


def test_many_trials_at_once_are_begun_over_several_rounds(study: Study) -> None:
    params = [{"parameterName": "n", "type": "INTEGER", "minValue": 1, "maxValue": 500}]
    study.begin(params=params, maxTrials=50, maxParallelTrials=50)
    assert len(study.tuning.trials) == 50
    assert len(study.fleet.list_all()) == 50


def test_no_study_takes_part_in_the_quota_of_created_jobs_more_than_once(study: Study) -> None:
    study.begin()
    assert study.store.count_created_since(study.now - timedelta(minutes=1)) == 1


def test_a_message_of_no_job_or_of_one_that_tunes_nothing_can_never_succeed(study: Study) -> None:
    World("plain", store=study.store, bus=study.bus).submit(a_spec())
    for job_id in ("nobody", "plain"):
        with pytest.raises(PermanentError, match=job_id):
            tune.handle(job_id, study.suggester, study.deps)


def test_more_than_one_delivery_can_do_is_asked_for_again(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study.submit(a_tuning_spec(maxParallelTrials=3))
    monkeypatch.setattr(tune, "PASSES", 2)
    monkeypatch.setattr(tune, "BEGINNINGS_MAX", 1)
    with pytest.raises(TemporaryError):
        tune.handle(STUDY, study.suggester, study.deps)
    assert study.store.pending_keys(STUDY), "not done"
    tune.handle(STUDY, study.suggester, study.deps)
    assert study.store.pending_keys(STUDY) == ()


def test_a_trial_in_the_ledger_of_its_tuning_job_has_one_end(study: Study) -> None:
    study.begin(maxTrials=1)
    study.up(1)
    study.done(1, 0.5)
    assert study.tuning.trials == (
        Trial(
            1,
            ("1", "16"),
            TrialState.SUCCEEDED,
            study.trial(1).job.started_at,
            study.trial(1).job.ended_at,
            study.tuning.trials[0].measurement,
        ),
    )
