"""Tuning jobs under all faults at once.

Messages are lost, repeated and reordered; functions crash after any port call, or are suspended
between two of them while others run; trials fail, report measurements and are stopped early, VMs
are lost, users cancel. Each seed is one history. During it, the ledgers lead to the stored state,
not too many trials run, and no trial is created twice or with other values than the ledger's. After
the faults, everything ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import hypothesis
import pytest

from tests.support.jobs import CHIEF, a_tuning_spec
from tests.support.study import STUDY, Study
from tests.support.world import World
from trainmaster.core.ledger import fold
from trainmaster.core.model.job import Job
from trainmaster.core.model.tuning import TrialState, trial_id
from trainmaster.core.rules.tuning import planned_trials
from trainmaster.errors import TemporaryError
from trainmaster.flows import sweep, user_requests
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.ports import Bus, Store
from trainmaster_local.memory.bus import MemoryBus, Message

SEEDS = 100 if hypothesis.settings().max_examples > 150 else 30
STEPS_MAX = 80
DEPTH_MAX = 3
CANCEL_SHARE = 0.2
DELIVERIES_MAX = 100

AGENT_EVENTS: list[tuple[str, dict[str, object]]] = [
    ("vm-ready", {}),
    ("vm-ready", {}),
    ("replica-exit", {"cause": "process", "exit_status": 0, "metric": {"value": 0.5, "step": 1}}),
    ("replica-exit", {"cause": "process", "exit_status": 0}),
    ("replica-exit", {"cause": "process", "exit_status": 1}),
    ("replica-exit", {"cause": "install", "exit_status": 1}),
    ("maintenance", {"cause": "preemption"}),
]
"""Events that an agent may send, drawn with equal probability."""


class FunctionCrashed(BaseException):
    """The function's process ended."""


@dataclass
class Faults:
    """Probabilities of the faults, per message or per port call."""

    rng: random.Random
    lost: float = 0.1
    repeated: float = 0.2
    crash: float = 0.03
    suspend: float = 0.1

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def stop(self) -> None:
        self.lost = self.repeated = self.crash = self.suspend = 0.0


class FaultyBus(MemoryBus):
    """Delivers messages in any order, some never, some twice."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        if not self.faults.chance(self.faults.lost):
            super().publish(topic, data, attributes)
        if self.faults.chance(self.faults.repeated):
            super().publish(topic, data, attributes)

    def take(self, timeout_s: float = 0.0) -> Message | None:
        self._queue.rotate(self.faults.rng.randrange(len(self._queue) + 1))
        return super().take()


@dataclass
class FaultyPort:
    """A port whose caller may be suspended before a call, and may crash after it."""

    port: object
    study: FaultyStudy

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.port, name)

        def call(*args: object, **kwargs: object) -> object:
            faults = self.study.faults
            if faults.chance(faults.suspend):
                self.study.run_others()
            result = method(*args, **kwargs)
            if faults.chance(faults.crash):
                raise FunctionCrashed(name)
            if name == "commit" and faults.chance(faults.suspend):
                self.study.run_others()
            return result

        return call


@dataclass
class FaultyStudy(Study):
    """A tuning job whose functions meet faults."""

    faults: Faults = field(default_factory=lambda: Faults(random.Random(0)))  # noqa: S311 - keeps no secret
    depth: int = 0
    """Number of function invocations that are suspended, or running."""
    cancel_requested: bool = False

    @property
    def deps(self) -> CreationDeps:
        deps = super().deps
        store = FaultyPort(self.store, self)
        bus = FaultyPort(self.bus, self)
        return CreationDeps(cast("Store", store), cast("Bus", bus), deps.clock, deps.sleep)

    def handle(self, function: Callable[[], object]) -> None:
        """Call the function until it succeeds: Pub/Sub redelivers a message that is not
        acknowledged.
        """
        self.depth += 1
        try:
            for _ in range(DELIVERIES_MAX):
                try:
                    function()
                except (FunctionCrashed, TemporaryError):
                    self.wait(1)
                    continue
                return
            raise AssertionError(f"not handled in {DELIVERIES_MAX} deliveries")
        finally:
            self.depth -= 1

    def run_others(self) -> None:
        """Let the user cancel, some time after the request was planned, and let one more message be
        handled.
        """
        if self.cancel_requested and self.faults.chance(CANCEL_SHARE):
            self.cancel_requested = False
            self.handle(lambda: user_requests.cancel_job(STUDY, "the user", self.deps))
        if self.depth < DEPTH_MAX and (message := self.bus.take()):
            self.deliver_one(message)

    def deliver_one(self, message: Message) -> None:
        self.handle(lambda: self.handlers[message.topic](message))

    def deliver(self) -> None:
        while message := self.bus.take():
            self.deliver_one(message)

    def sweep(self) -> None:
        self.handle(lambda: sweep.handle(self.deps))

    def send_agent_event(self) -> None:
        """Send a random event from the VM of a random live trial, if the VM exists."""
        running = [job for job in self.store.live_jobs().jobs if job.trial_of]
        if not running:
            return
        trial = self.trial(trial_number(self.faults.rng.choice(running)))
        vm = trial.find_vm(CHIEF)
        if vm is None or vm.directive is None:
            return
        kind, details = self.faults.rng.choice(AGENT_EVENTS)
        self.handle(lambda: self.send_from_vm(trial, kind, details))
        self.now = max(self.now, trial.now)
        self.fleet.clock = lambda: self.now

    def run_and_measure_a_trial(self) -> None:
        """Let a random live trial get ready and report; a negative value makes it unpromising.

        Then look at the job.
        """
        trial = self.faults.rng.choice(self.tuning.live) if self.tuning.live else None
        vm = self.trial(trial.number).find_vm(CHIEF) if trial else None
        if trial is None or vm is None or vm.directive is None:
            return
        self.handle(lambda: self.send_from_vm(self.trial(trial.number), "vm-ready", {}))
        values = [self.faults.rng.uniform(-1.0, 0.5) for _ in range(self.faults.rng.randint(1, 3))]
        if self.trial(trial.number).find_vm(CHIEF):
            self.write_metric(trial.number, *values)
        self.sweep()
        for _ in range(self.bus.size):
            self.run_others()

    def send_from_vm(self, trial: World, kind: str, details: dict[str, object]) -> None:
        trial.__class__ = FaultyTrial
        trial.__dict__["study"] = self
        if trial.find_vm(CHIEF):
            trial.send(kind, CHIEF, **details)


class FaultyTrial(Study):
    """The world of a trial, whose functions meet the faults of the tuning job."""

    @property
    def deps(self) -> CreationDeps:
        study: FaultyStudy = self.__dict__["study"]
        return study.deps


def trial_number(job: Job) -> int:
    assert job.trial_of is not None
    return job.trial_of.number


def check(study: FaultyStudy) -> None:
    loaded = study.store.load_attempt(STUDY)
    assert loaded is not None
    assert fold(study.store.ledger(STUDY)) == loaded.state
    tuning = study.tuning
    live = [job for job in study.store.live_jobs().jobs if job.trial_of]
    assert len(live) <= tuning.max_parallel or study.has_ended
    assert len(tuning.trials) <= planned_trials(tuning)
    assert len({trial.values for trial in tuning.trials}) == len(tuning.trials)
    assert [trial.number for trial in tuning.trials] == list(range(1, len(tuning.trials) + 1))
    for trial in tuning.trials:
        job = study.store.load_attempt(trial_id(STUDY, trial.number))
        if job is not None:
            assert job.state.job.trial_of is not None
            assert (
                tuple(parameter.value for parameter in job.state.job.trial_of.assigned)
                == trial.values
            )
            assert fold(study.store.ledger(job.state.job.job_id)) == job.state
            own_state = "CANCELLED" if trial.state is TrialState.STOPPED else trial.state
            assert not trial.state.is_terminal or own_state == job.state.job.state.value
        assert trial.state is not TrialState.STOPPED or trial.measurement == trial.reported[-1]


def run_to_end_without_faults(study: FaultyStudy) -> None:
    """Stop the faults, and let all programs complete."""
    study.faults.stop()
    for _ in range(40):
        study.wait(60)
        study.sweep()
        study.deliver()
        assert not (study.has_ended and study.store.live_jobs().jobs), (
            "a trial outlives its tuning job"
        )
        for job in study.store.live_jobs().jobs:
            if job.trial_of and study.trial(trial_number(job)).find_vm(CHIEF):
                trial = study.trial(trial_number(job))
                trial.send("vm-ready", CHIEF)
                trial.send("replica-exit", CHIEF, cause="process", exit_status=0)
                study.now = max(study.now, trial.now)
                study.fleet.clock = lambda: study.now
        study.deliver()
        if (
            study.has_ended
            and not study.store.live_jobs().jobs
            and not study.store.jobs_with_pending()
        ):
            return
    raise AssertionError(
        f"{study.state}, live: {[job.job_id for job in study.store.live_jobs().jobs]}"
    )


@cache
def states_of(seed: int) -> tuple[TrialState, ...]:
    """Run the history once for all tests of this module, and return the final states of
    its trials.
    """
    return tuple(trial.state for trial in run_history(seed).tuning.trials)


def run_history(seed: int) -> FaultyStudy:
    rng = random.Random(seed)  # noqa: S311 - reproducible randomness is the purpose
    faults = Faults(rng)
    study = FaultyStudy(bus=FaultyBus(faults), faults=faults)
    spec = a_tuning_spec(
        maxTrials=rng.randint(1, 6),
        maxParallelTrials=rng.randint(1, 3),
        maxFailedTrials=rng.choice((0, 1, 2, 9)),
        enableTrialEarlyStopping=rng.random() < 0.7,
    )
    study.handle(lambda: study.submit(spec))
    steps = rng.randrange(STEPS_MAX)
    cancel_step = rng.randrange(STEPS_MAX // 4) if rng.random() < 0.5 else None
    for step in range(steps):
        choice = rng.random()
        study.cancel_requested |= step == cancel_step
        if choice < 0.5:
            study.run_others()
        elif choice < 0.75:
            study.send_agent_event()
        elif choice < 0.94:
            study.run_and_measure_a_trial()
        else:
            study.wait(rng.choice((1, 60)))
            study.sweep()
        check(study)
    run_to_end_without_faults(study)
    check(study)
    assert study.fleet.list_all() == ()
    assert all(trial.state.is_terminal for trial in study.tuning.trials)
    return study


@pytest.mark.parametrize("seed", range(SEEDS))
def test_tuning_job_under_all_faults_equals_its_ledger_and_ends(seed: int) -> None:
    states_of(seed)


def test_histories_contain_trials_that_are_stopped_early() -> None:
    """Otherwise the histories would not test it."""
    states = [state for seed in range(20) for state in states_of(seed)]
    assert states.count(TrialState.STOPPED) >= 3
    assert states.count(TrialState.SUCCEEDED) >= 10
