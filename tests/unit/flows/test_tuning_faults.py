"""Tuning jobs whose messages are repeated or lost, and whose functions die or run side by side.

`tune` records the suggestion of a trial, the values of its parameters, and then creates the trial's
job. `Study.states` are the states of the trials in the tuning job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest

from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.study import STUDY, Study, run_whole_study
from tests.support.world import Grid, World
from trainmaster.core.decisions import Reason
from trainmaster.core.events import TrialEnded, TrialSuggested, TuningEnded
from trainmaster.core.model.tuning import TrialState, Tuning
from trainmaster.errors import PermanentError
from trainmaster.flows import tune
from trainmaster.flows.commit.record import record
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.delivery import LEASE_S
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import TuneRequest, decode_tune
from trainmaster.ports import Bus, Store
from trainmaster_local.memory.bus import MemoryBus


def test_messages_delivered_twice_give_the_same_trials(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = MemoryBus.publish

    def publish_twice(
        self: MemoryBus, topic: str, data: bytes, attributes: Mapping[str, str]
    ) -> None:
        publish(self, topic, data, attributes)
        publish(self, topic, data, attributes)

    monkeypatch.setattr(MemoryBus, "publish", publish_twice)
    run_whole_study(study)
    assert [entry.key for entry in study.ledger if entry.key.startswith("trial")] == [
        f"trial-{number}-{event}"
        for number, event in (
            (1, "suggested-0"),
            (2, "suggested-0"),
            (1, "running"),
            (1, "ended"),
            (3, "suggested-1"),
            (2, "running"),
            (2, "ended"),
            (3, "running"),
            (3, "ended"),
        )
    ]


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
    """A tuning job one of whose functions dies after its n-th effect, counted over all
    functions.
    """

    dies_after: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._calls_left = [self.dies_after]

    @property
    def deps(self) -> CreationDeps:
        deps = super().deps
        store, bus = (
            CountdownPort(self.store, self._calls_left),
            CountdownPort(self.bus, self._calls_left),
        )
        return CreationDeps(
            cast("Store", store), cast("Bus", bus), deps.clock, deps.sleep, limits=self.limits
        )

    def trial(self, number: int) -> World:
        trial = super().trial(number)
        trial.__class__ = CrashingStudy
        trial._calls_left = self._calls_left  # type: ignore[attr-defined]
        return trial

    def submit(
        self,
        spec: dict[str, object] | None = None,
        source: str | None = "gs://b/jobs/digits.yaml#1",
    ) -> None:
        self.redeliver_once(lambda: super(CrashingStudy, self).submit(spec, source))

    def send(self, kind: str, replica_id: Any, **more: object) -> None:
        self.redeliver_once(lambda: super(CrashingStudy, self).send(kind, replica_id, **more))

    def redeliver_once(self, deliver: Callable[[], None]) -> None:
        """Deliver again if the process died, as Pub/Sub does with a message that was not
        acknowledged.
        """
        try:
            deliver()
        except ProcessDiedError:
            deliver()

    def deliver(self) -> None:
        """Deliver all messages, sweep when the leases of dead deliveries have expired, and deliver
        again.
        """
        self._drain()
        self.wait(LEASE_S + 1)
        self.redeliver_once(self.sweep)
        self._drain()

    def _drain(self) -> None:
        while message := self.bus.take():
            self.redeliver_once(partial(self._deliver, message))


EFFECTS = 80
"""What the functions of the whole tuning job change, counted one by one."""


@pytest.mark.parametrize("after", range(1, EFFECTS + 1, 2))
def test_crash_after_an_effect_gives_the_same_trials(after: int) -> None:
    check_crash(after)


@pytest.mark.heavy(
    fact="a crash after any effect gives the same trials",
    quick="a crash after every other effect in the same module",
)
@pytest.mark.parametrize("after", range(2, EFFECTS + 1, 2))
def test_crash_after_any_effect_gives_the_same_trials(after: int) -> None:
    check_crash(after)


def check_crash(after: int) -> None:
    study = CrashingStudy(dies_after=after)
    run_whole_study(study)
    assert [trial.values for trial in study.tuning.trials] == [
        ("1", "16"),
        ("1", "32"),
        ("2", "16"),
    ]


def test_crash_test_covers_all_effects() -> None:
    study = CrashingStudy(dies_after=1000)
    run_whole_study(study)
    assert 1000 - study._calls_left[0] == EFFECTS


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
    assert study.trial(1).job.plan.program.args[2:] == (
        "--layers",
        "3",
        "--width",
        "32",
    ), "as the ledger says"
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
    """It comes after the first trial's failure, which would end the job, but before another trial's
    success.
    """
    record_two_trials(study)
    record_trial_end(1, TrialState.FAILED, study)
    late = record(TrialSuggested(STUDY, 3, ("2", "16"), study.now), study.deps)
    assert late.entry.decision.reason is Reason.NOTHING_TO_DO
    record_trial_end(2, TrialState.SUCCEEDED, study)
    study.sweep()
    study.deliver()
    assert study.states == ["FAILED", "SUCCEEDED", "QUEUED"]


def test_outdated_end_of_the_tuning_job_is_ignored(study: Study) -> None:
    """The end was decided after the first trial's failure, but another trial has succeeded
    meanwhile.
    """
    record_two_trials(study)
    record_trial_end(1, TrialState.FAILED, study)
    record_trial_end(2, TrialState.SUCCEEDED, study)
    late = record(TuningEnded(STUDY, study.now, ended=1), study.deps)
    assert late.entry.decision.is_provisional
    study.sweep()
    study.deliver()
    study.report_ready(3)
    study.complete_trial(3, 0.5)
    assert study.state == "SUCCEEDED"


def test_message_about_a_missing_or_ordinary_job_is_a_permanent_error(study: Study) -> None:
    World("plain", store=study.store, bus=study.bus).submit(a_spec())
    for job_id in ("missing", "plain"):
        with pytest.raises(PermanentError, match=job_id):
            tune.handle(TuneRequest(job_id), study.suggester, study.deps)


def test_work_beyond_one_delivery_is_continued_by_the_next(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.submit(a_tuning_spec(maxParallelTrials=3))
    monkeypatch.setattr(tune, "CYCLES_MAX", 2)
    monkeypatch.setattr(tune, "NEW_TRIALS_MAX", 1)
    study.bus.drain()
    tune.handle(TuneRequest(STUDY), study.suggester, study.deps)
    assert study.store.pending_keys(STUDY), "the entry is still pending"
    requests = [
        decode_tune(message.data) for message in study.bus.drain() if message.topic == topics.TUNE
    ]
    assert TuneRequest(STUDY, number=2) in requests
    tune.handle(TuneRequest(STUDY, number=2), study.suggester, study.deps)
    assert study.store.pending_keys(STUDY) == ()


def test_request_is_continued_a_few_times_and_then_left_to_the_sweep(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.submit(a_tuning_spec(maxParallelTrials=3))
    monkeypatch.setattr(tune, "CYCLES_MAX", 1)
    monkeypatch.setattr(tune, "NEW_TRIALS_MAX", 1)
    study.bus.drain()
    tune.handle(TuneRequest(STUDY, number=tune.REQUESTS_MAX), study.suggester, study.deps)
    assert topics.TUNE not in [message.topic for message in study.bus.drain()]
    monkeypatch.undo()
    study.sweep()
    study.deliver()
    assert study.store.pending_keys(STUDY) == ()
