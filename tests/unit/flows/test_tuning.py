"""The lifecycle of a tuning job and its trials, through the flows and the sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from shared.core.decisions import Reason
from shared.core.events import CancelRequested, TrialEnded, TrialSuggested, TuningEnded
from shared.core.model.tuning import Trial, TrialState, Tuning
from shared.errors import PermanentError
from shared.flows import provision, tune
from shared.flows.reconciliation import LEASE_S
from shared.flows.record import Deps, record
from shared.flows.user_requests import delete_job
from shared.memory.bus import MemoryBus, Message
from shared.memory.store import MemoryStore
from shared.messaging import agent_messages, internal_requests, topics
from shared.messaging.internal_requests import TuneRequest, decode_tune
from shared.ports import Bus, Store
from tests.support.jobs import CHIEF, a_spec, a_tuning_spec
from tests.support.study import STUDY, Study, run_whole_study
from tests.support.world import Grid, World


@pytest.fixture
def study() -> Study:
    return Study()


def test_tuning_job_goes_from_submitted_to_succeeded_and_leaves_no_vm(study: Study) -> None:
    study.submit(a_tuning_spec())
    assert (study.state, study.replicas, study.states) == ("QUEUED", (), [])
    study.deliver()
    assert study.state == "PREPARING", "as its first trial is"
    assert study.states == ["QUEUED", "QUEUED"], "maxParallelTrials"
    assert len(study.fleet.list_all()) == 2
    study.report_ready(1)
    assert (study.state, study.states) == ("RUNNING", ["RUNNING", "QUEUED"])
    study.report_ready(2)
    study.complete_trial(2, 0.5)
    assert study.states == ["RUNNING", "SUCCEEDED", "QUEUED"], "the end of a trial starts the next one"
    study.complete_trial(1, 0.9)
    study.report_ready(3)
    assert study.state == "RUNNING"
    study.complete_trial(3, 0.7)
    assert study.state == "SUCCEEDED"
    assert [trial.number for trial in study.tuning.best_first()] == [1, 3, 2]
    assert [trial.measurement.value for trial in study.tuning.trials if trial.measurement] == [0.9, 0.5, 0.7]
    assert study.job.ended_at == study.now
    study.sweep()
    study.deliver()
    assert study.fleet.list_all() == ()
    assert study.store.jobs_with_pending() == ()
    study.check()


def test_trial_has_its_values_as_arguments_and_its_own_directory(study: Study) -> None:
    study.start_tuning()
    job = study.trial(2).job
    program = job.plan.program
    assert program.args == ("--epochs", "5", "--layers", "1", "--width", "32")
    assert program.job_dir == "gs://bucket/digits/2"
    assert job.trial_of is not None
    assert (job.trial_of.job_id, job.trial_of.number, job.trial_of.metric_tag) == (STUDY, 2, "accuracy")
    assert job.labels == study.job.labels
    vm = study.trial(2).vm(CHIEF)
    assert vm is not None
    config = json.loads(study.fleet.metadata(vm.name)["trainmaster-vm-config"])
    assert config["job_id"] == "digits_1-trial-2", "the job id in the agent's messages"
    assert config["environment"]["CLOUD_ML_JOB_ID"] == STUDY
    assert config["environment"]["CLOUD_ML_TRIAL_ID"] == "2"
    assert config["environment"]["CLOUD_ML_HP_METRIC_TAG"] == "accuracy"
    assert config["tf_config"]["task"]["trial"] == "2"
    assert config["tf_config"]["job"]["hyperparameters"]["max_trials"] == 3


def test_messages_delivered_twice_give_the_same_trials(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = MemoryBus.publish

    def publish_twice(self: MemoryBus, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        publish(self, topic, data, attributes)
        publish(self, topic, data, attributes)

    monkeypatch.setattr(MemoryBus, "publish", publish_twice)
    run_whole_study(study)
    assert [entry.key for entry in study.ledger if entry.key.startswith("trial")] == [
        f"trial-{number}-{event}"
        for number, event in (
            (1, "suggested-0"), (2, "suggested-0"), (1, "running"), (1, "ended"), (3, "suggested-1"),
            (2, "running"), (2, "ended"), (3, "running"), (3, "ended"),
        )
    ]  # fmt: skip


HUGE = '{"value": 1, "step": 1' + 30 * "0" + "}"


@dataclass
class ProcessDiedError(BaseException):
    """The function's process ended between two calls."""

    after: str


@dataclass
class CountdownPort:
    """A port whose caller dies right after a given number of calls that change something."""

    port: object
    calls_left: list[int]
    """One number, shared by all ports."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.port, name)

        def call(*arguments: object, **named: object) -> object:
            result = method(*arguments, **named)
            if name in ("commit", "publish", "mark_done"):
                self.calls_left[0] -= 1
                if self.calls_left[0] == 0:
                    raise ProcessDiedError(name)
            return result

        return call


@dataclass
class CrashingStudy(Study):
    """A tuning job one of whose functions dies after its n-th effect, counted over all functions."""

    dies_after: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._calls_left = [self.dies_after]

    @property
    def deps(self) -> Deps:
        deps = super().deps
        store, bus = CountdownPort(self.store, self._calls_left), CountdownPort(self.bus, self._calls_left)
        return Deps(cast("Store", store), cast("Bus", bus), deps.clock, deps.sleep, limits=self.limits)

    def trial(self, number: int) -> World:
        trial = super().trial(number)
        trial.__class__ = CrashingStudy
        trial._calls_left = self._calls_left  # type: ignore[attr-defined]
        return trial

    def submit(self, spec: dict[str, object] | None = None, source: str | None = "gs://b/jobs/digits.yaml#1") -> None:
        self.redeliver_once(lambda: super(CrashingStudy, self).submit(spec, source))

    def send(self, kind: str, replica_id: Any, **more: object) -> None:
        self.redeliver_once(lambda: super(CrashingStudy, self).send(kind, replica_id, **more))

    def redeliver_once(self, deliver: Callable[[], None]) -> None:
        """Deliver again if the process died, as Pub/Sub does with a message that was not acknowledged."""
        try:
            deliver()
        except ProcessDiedError:
            deliver()

    def deliver(self) -> None:
        """Deliver all messages, sweep when the leases of dead deliveries have expired, and deliver again."""
        self._drain()
        self.wait(LEASE_S + 1)
        self.redeliver_once(self.sweep)
        self._drain()

    def _drain(self) -> None:
        while message := self.bus.take():
            self.redeliver_once(lambda message=message: self._handle(message))  # type: ignore[misc]

    def _handle(self, message: Message) -> None:
        if message.topic == topics.TUNE:
            tune.handle(internal_requests.decode_tune(message.data), self.suggester, self.deps)
        else:
            provision.handle(internal_requests.decode_provision(message.data), self.fleet_deps, self.deps)


@pytest.mark.parametrize("after", range(1, 120))
def test_crash_after_any_effect_gives_the_same_trials(after: int) -> None:
    study = CrashingStudy(dies_after=after)
    run_whole_study(study)
    assert [trial.values for trial in study.tuning.trials] == [("1", "16"), ("1", "32"), ("2", "16")]


def test_crash_test_covers_all_effects() -> None:
    study = CrashingStudy(dies_after=1000)
    run_whole_study(study)
    assert 1000 - study._calls_left[0] < 120


def drop_messages(study: Study, topic: str) -> None:
    """Lose every published message of the topic."""
    kept = [message for message in study.bus.drain() if message.topic != topic]
    for message in kept:
        study.bus.publish(message.topic, message.data, message.attributes)


def test_sweep_starts_a_tuning_job_whose_message_was_lost(study: Study) -> None:
    study.submit(a_tuning_spec())
    study.bus.drain()
    study.sweep()
    study.deliver()
    assert study.states == ["QUEUED", "QUEUED"]


def test_sweep_records_the_end_of_a_trial_whose_message_was_lost(study: Study) -> None:
    study.start_tuning()
    study.report_ready(1, 2)
    study.send_from_trial(1, "replica-exit", cause="process", exit_status=0, metric={"value": 0.5})
    drop_messages(study, topics.TUNE)
    study.deliver()
    assert study.states == ["RUNNING", "RUNNING"]
    study.sweep()
    study.deliver()
    assert study.states == ["SUCCEEDED", "RUNNING", "QUEUED"]
    study.check()


def test_sweep_creates_the_missing_job_of_a_recorded_trial(study: Study) -> None:
    study.submit(a_tuning_spec())
    study.bus.drain()
    record(TrialSuggested(STUDY, 1, ("3", "32"), study.now), study.deps)
    assert study.store.load("digits_1-trial-1") is None
    study.sweep()
    study.deliver()
    assert study.trial(1).job.plan.program.args[2:] == ("--layers", "3", "--width", "32"), "as the ledger says"
    assert study.states == ["QUEUED", "QUEUED"]
    study.check()


def test_concurrent_suggestions_for_one_trial_record_one_of_them(study: Study) -> None:
    """The other delivery runs between a suggestion and its commit."""
    study.submit(a_tuning_spec(maxParallelTrials=1))
    study.bus.drain()

    class RacingSuggester(Grid):
        def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
            study.suggester = OtherSuggester()
            tune.handle(TuneRequest(STUDY), study.suggester, study.deps)
            return ("1", "16")

    class OtherSuggester(Grid):
        def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
            return ("3", "32")

    tune.handle(TuneRequest(STUDY), RacingSuggester(), study.deps)
    assert [trial.values for trial in study.tuning.trials] == [("3", "32")]
    assert study.trial(1).job.plan.program.args[-1] == "32"
    study.check()


def record_trial_end(number: int, state: TrialState, study: Study) -> None:
    record(TrialEnded(STUDY, number, state, study.now, study.now), study.deps)


def record_two_trials(study: Study) -> None:
    """Submit a tuning job and record two suggestions, without running `tune`."""
    study.submit(a_tuning_spec(maxTrials=3, maxParallelTrials=3))
    study.bus.drain()
    for number, width in ((1, "16"), (2, "32")):
        record(TrialSuggested(STUDY, number, ("1", width), study.now), study.deps)


def test_suggestion_ignored_at_the_wrong_moment_is_repeated(study: Study) -> None:
    """It comes after the first trial's failure, which would end the job, but before another trial's success."""
    record_two_trials(study)
    record_trial_end(1, TrialState.FAILED, study)
    late = record(TrialSuggested(STUDY, 3, ("2", "16"), study.now), study.deps)
    assert late.entry.decision.reason is Reason.NOTHING_TO_DO
    record_trial_end(2, TrialState.SUCCEEDED, study)
    study.sweep()
    study.deliver()
    assert study.states == ["FAILED", "SUCCEEDED", "QUEUED"]


def test_outdated_end_of_the_tuning_job_is_ignored(study: Study) -> None:
    """The end was decided after the first trial's failure, but another trial has succeeded meanwhile."""
    record_two_trials(study)
    record_trial_end(1, TrialState.FAILED, study)
    record_trial_end(2, TrialState.SUCCEEDED, study)
    late = record(TuningEnded(STUDY, study.now, ended=1), study.deps)
    assert late.entry.decision.reason is Reason.NOT_YET
    study.sweep()
    study.deliver()
    study.report_ready(3)
    study.complete_trial(3, 0.5)
    assert study.state == "SUCCEEDED"


def test_cancelled_tuning_job_cancels_its_trials_and_records_their_end(study: Study) -> None:
    study.start_tuning()
    study.report_ready(1)
    record(CancelRequested(STUDY, "me", study.now), study.deps)
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


def test_sweep_completes_a_cancellation_whose_message_was_lost(study: Study) -> None:
    study.start_tuning()
    record(CancelRequested(STUDY, "me", study.now), study.deps)
    study.bus.drain()
    study.sweep()
    study.deliver()
    assert study.store.live_jobs() == ()


def test_deleted_tuning_job_deletes_its_trials(study: Study) -> None:
    """Otherwise their histories would stay for ever: no user sees a trial's job, and so none deletes it."""
    run_whole_study(study)
    assert [study.trial(number).job.deleted_at for number in (1, 2, 3)] == [None] * 3
    assert delete_job(STUDY, "request-1", study.deps, by="anna")
    study.deliver()
    assert None not in [study.trial(number).job.deleted_at for number in (1, 2, 3)]
    assert study.store.jobs_with_pending() == ()
    study.check()


def test_trial_created_after_the_cancellation_of_its_tuning_job_is_cancelled(study: Study) -> None:
    """The delivery that creates the trial's job has read the tuning job before the cancellation."""
    study.submit(a_tuning_spec(maxParallelTrials=1))
    study.bus.drain()
    real_store = study.store
    late: list[str] = []

    class CancellingStore(MemoryStore):
        """Cancels the tuning job between the commit of a suggestion and the creation of the trial's job."""

        def load(self, job_id: str, replica: str | None = None) -> Any:
            if job_id == "digits_1-trial-1" and not late:
                late.append(job_id)
                study.store = real_store
                record(CancelRequested(STUDY, "me", study.now), study.deps)
                tune.handle(TuneRequest(STUDY), study.suggester, study.deps)
                assert study.trial(1).state == "CANCELLED", "the other delivery creates the job and cancels it"
                return None
            return real_store.load(job_id, replica)

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) if name == "load" else getattr(real_store, name)

    study.store = CancellingStore()
    deps = study.deps
    tune.handle(TuneRequest(STUDY), study.suggester, deps)
    assert late
    study.deliver()
    assert study.store.live_jobs() == ()
    assert study.fleet.list_all() == ()
    assert study.states == ["CANCELLED"]
    study.check()


def test_maximum_running_time_of_the_tuning_job_cancels_its_trials(study: Study) -> None:
    study.submit(a_tuning_spec({"scheduling": {"maxRunningTime": "600s"}}))
    study.deliver()
    study.report_ready(1)
    study.wait(300)
    study.report_ready(2)
    study.wait(301)
    study.sweep()
    study.deliver()
    assert study.state == "CANCELLED"
    assert study.job.error_message == "Job was cancelled for exceeding the maximum allowed duration of 600 seconds."
    assert study.states == ["CANCELLED", "CANCELLED"]


def test_max_failed_trials_fails_the_tuning_job_and_cancels_the_rest(study: Study) -> None:
    study.start_tuning(maxTrials=6, maxParallelTrials=3, maxFailedTrials=2)
    study.report_ready(1, 2, 3)
    study.fail_trial(2)
    assert study.states == ["RUNNING", "FAILED", "RUNNING", "QUEUED"]
    study.fail_trial(1)
    assert study.state == "FAILED"
    assert study.job.error_message == (
        "Hyperparameter Tuning Trial #1 failed. 2 total hyperparameter trial failures were seen, out of 4 trials "
        "attempted which reaches the user-specified limit of 2.The last trial to fail was #1, with parameters: "
        "layers=1, width=16, .  The trial's error message was: The replica chief 0 could not install its packages "
        "(status 1). \nno such package"
    )
    assert study.states == ["FAILED", "FAILED", "CANCELLED", "CANCELLED"]
    study.check()


def test_without_max_failed_trials_only_a_failure_before_any_success_fails_the_job(study: Study) -> None:
    study.start_tuning(maxTrials=4, maxParallelTrials=2)
    study.report_ready(1, 2)
    study.complete_trial(1, 0.1)
    for number in (2, 3, 4):
        study.report_ready(number)
        study.fail_trial(number)
    assert study.states == ["SUCCEEDED", "FAILED", "FAILED", "FAILED"]
    assert study.state == "SUCCEEDED"
    other = Study()
    other.start_tuning()
    other.report_ready(1, 2)
    other.fail_trial(2)
    assert other.state == "FAILED"
    assert (other.job.error_message or "").startswith("Hyperparameter Tuning Trial #2 failed before any other")
    assert other.states == ["CANCELLED", "FAILED"]


def test_trial_without_a_metric_succeeds_and_the_ledger_names_the_metric(study: Study) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    study.complete_trial(1)
    assert study.state == "SUCCEEDED"
    ended = next(entry for entry in study.ledger if entry.key == "trial-1-ended")
    assert ended.decision.reason is Reason.TRIAL_WITHOUT_METRIC
    assert "did not report accuracy" in ended.decision.text


def test_metric_of_an_earlier_incarnation_is_kept_if_the_last_one_reports_none(study: Study) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    study.send_from_trial(1, "replica-exit", cause="process", exit_status=1, metric={"value": 0.25, "step": 7})
    study.deliver()
    study.report_ready(1)
    study.complete_trial(1)
    measurement = study.tuning.trials[0].measurement
    assert measurement is not None
    assert (measurement.value, measurement.step) == (0.25, 7)
    study.check()


@pytest.mark.parametrize(
    "metric", ['{"value": NaN}', '{"value": "high"}', '{"value": 1e999}', "17", '{"step": 1}', HUGE]
)
def test_invalid_metric_is_ignored_and_the_exit_is_decoded(study: Study, metric: str) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    message = json.dumps(
        {**study.trial(1).message_fields(CHIEF), "cause": "process", "exit_status": 0, "metric": "METRIC"}
    )
    assert agent_messages.decode_replica_exit(message.replace('"METRIC"', metric).encode()).measurement is None


def test_tuning_job_succeeds_when_its_finite_search_space_is_exhausted(study: Study) -> None:
    study.start_tuning(maxTrials=100, maxParallelTrials=10)
    assert len(study.tuning.trials) == 6
    for number in range(1, 7):
        study.report_ready(number)
        study.complete_trial(number, 0.5)
    assert study.state == "SUCCEEDED"


def test_resumed_tuning_job_starts_with_the_earlier_results(study: Study) -> None:
    run_whole_study(study)
    resumed = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    resumed.submit(a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9), source="b")
    resumed.deliver()
    assert [(past.values, past.value) for past in resumed.tuning.earlier] == [
        (("1", "16"), 0.1),
        (("1", "32"), 0.2),
        (("2", "16"), 0.3),
    ]
    assert [trial.values for trial in resumed.tuning.trials] == [("2", "32"), ("3", "16")], (
        "the next combinations, numbered from 1"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (a_tuning_spec(resumePreviousJobId="missing"), "names missing, which is not a tuning job"),
        (a_tuning_spec(resumePreviousJobId="plain"), "names plain, which is not a tuning job"),
        (a_tuning_spec(resumePreviousJobId=STUDY, goal="MINIMIZE"), "which has other params, another goal"),
    ],
)
def test_tuning_job_that_cannot_be_resumed_is_rejected_by_its_field(
    study: Study, spec: dict[str, object], problem: str
) -> None:
    World("plain", store=study.store, bus=study.bus).submit()
    run_whole_study(study)
    resumed = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    with pytest.raises(PermanentError, match=problem) as error:
        resumed.submit(spec, source="b")
    assert "training_input.hyperparameters.resume_previous_job_id" in str(error.value)


def test_repeated_submission_is_accepted_after_the_resumed_job_was_deleted(study: Study) -> None:
    run_whole_study(study)
    resumed = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    spec = a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9)
    resumed.submit(spec, source="b")
    assert delete_job(STUDY, "request-1", study.deps, by="anna")
    resumed.submit(spec, source="b")
    assert len(resumed.tuning.earlier) == 3
    assert study.store.rejections() == ()


def test_trials_are_admitted_like_jobs_and_the_tuning_job_uses_no_capacity(study: Study) -> None:
    study.limits = {"vcpus": 4}
    study.start_tuning(maxTrials=2)
    assert [study.trial(number).state for number in (1, 2)] == ["PREPARING", "QUEUED"]
    study.report_ready(1)
    study.complete_trial(1, 0.5)
    study.sweep()
    study.deliver()
    assert study.trial(2).state == "PREPARING"


def test_many_parallel_trials_are_started_over_several_rounds(study: Study) -> None:
    params = [{"parameterName": "n", "type": "INTEGER", "minValue": 1, "maxValue": 500}]
    study.start_tuning(params=params, maxTrials=50, maxParallelTrials=50)
    assert len(study.tuning.trials) == 50
    assert len(study.fleet.list_all()) == 50


def test_tuning_job_counts_once_in_the_number_of_created_jobs(study: Study) -> None:
    study.start_tuning()
    assert study.store.count_created_since(study.now - timedelta(minutes=1), through_api=False) == 1


def test_message_about_a_missing_or_ordinary_job_is_a_permanent_error(study: Study) -> None:
    World("plain", store=study.store, bus=study.bus).submit(a_spec())
    for job_id in ("missing", "plain"):
        with pytest.raises(PermanentError, match=job_id):
            tune.handle(TuneRequest(job_id), study.suggester, study.deps)


def test_work_beyond_one_delivery_is_continued_by_the_next(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study.submit(a_tuning_spec(maxParallelTrials=3))
    monkeypatch.setattr(tune, "ROUNDS_MAX", 2)
    monkeypatch.setattr(tune, "NEW_TRIALS_MAX", 1)
    study.bus.drain()
    tune.handle(TuneRequest(STUDY), study.suggester, study.deps)
    assert study.store.pending_keys(STUDY), "the entry is still pending"
    requests = [decode_tune(message.data) for message in study.bus.drain() if message.topic == topics.TUNE]
    assert TuneRequest(STUDY, number=2) in requests
    tune.handle(TuneRequest(STUDY, number=2), study.suggester, study.deps)
    assert study.store.pending_keys(STUDY) == ()


def test_request_is_continued_a_few_times_and_then_left_to_the_sweep(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.submit(a_tuning_spec(maxParallelTrials=3))
    monkeypatch.setattr(tune, "ROUNDS_MAX", 1)
    monkeypatch.setattr(tune, "NEW_TRIALS_MAX", 1)
    study.bus.drain()
    tune.handle(TuneRequest(STUDY, number=tune.REQUESTS_MAX), study.suggester, study.deps)
    requests = [decode_tune(message.data) for message in study.bus.drain() if message.topic == topics.TUNE]
    assert all(request.number == 1 for request in requests)
    monkeypatch.undo()
    study.sweep()
    study.deliver()
    assert study.store.pending_keys(STUDY) == ()


def test_ended_trial_is_recorded_with_its_times_and_measurement(study: Study) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    study.complete_trial(1, 0.5)
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
