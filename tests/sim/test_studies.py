"""Tuning jobs under everything at once: messages lost, repeated and out of order, functions that die after any effect,
or stop between any two and let others run first, trials that fail, machines that go, users who cancel.

Each seed is a history. Whatever happens in it, the ledgers say what is stored, not too much runs, no trial is made
twice or with other values than the ledger's, and in the end, without any more faults, everything has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from shared.core.ledger import fold
from shared.core.model.job import Job
from shared.core.model.tuning import trial_id
from shared.core.rules.tuning import planned
from shared.errors import TemporaryError
from shared.flows import cancel, provision, sweep, tune
from shared.flows.record import Deps
from shared.memory.bus import MemoryBus, Message
from shared.messaging import codec, topics
from shared.ports import Bus, Store
from tests.support.jobs import CHIEF, a_tuning_spec
from tests.support.study import STUDY, Study
from tests.support.world import World

SEEDS = 100
STEPS = 80
DEPTH_MAX = 3
CANCELS = 0.2


class Died(BaseException):
    """The function's process ended."""


@dataclass
class Misfortune:
    rng: random.Random
    lost: float = 0.1
    repeated: float = 0.2
    dies: float = 0.03
    waits: float = 0.1

    def strikes(self, share: float) -> bool:
        return self.rng.random() < share

    def end(self) -> None:
        self.lost = self.repeated = self.dies = self.waits = 0.0


class WildBus(MemoryBus):
    """Messages come in any order, some never, some again."""

    def __init__(self, misfortune: Misfortune) -> None:
        super().__init__()
        self.misfortune = misfortune

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        if not self.misfortune.strikes(self.misfortune.lost):
            super().publish(topic, data, attributes)
        if self.misfortune.strikes(self.misfortune.repeated):
            super().publish(topic, data, attributes)

    def take(self, timeout_s: float = 0.0) -> Message | None:
        self._waiting.rotate(self.misfortune.rng.randrange(len(self._waiting) + 1))
        return super().take()


@dataclass
class Interrupted:
    """A port whose caller may die after a call, or stop before it while others run."""

    port: object
    study: Wild

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.port, name)

        def call(*arguments: object, **named: object) -> object:
            misfortune = self.study.misfortune
            if misfortune.strikes(misfortune.waits):
                self.study.others_run()
            answer = method(*arguments, **named)
            if misfortune.strikes(misfortune.dies):
                raise Died(name)
            if name == "commit" and misfortune.strikes(misfortune.waits):
                self.study.others_run()
            return answer

        return call


@dataclass
class Wild(Study):
    misfortune: Misfortune = field(default_factory=lambda: Misfortune(random.Random(0)))  # noqa: S311 - keeps no secret
    depth: int = 0
    is_to_be_cancelled: bool = False

    @property
    def deps(self) -> Deps:
        whole = super().deps
        store, bus = Interrupted(self.store, self), Interrupted(self.bus, self)
        return Deps(cast("Store", store), cast("Bus", bus), whole.clock, whole.sleep)

    def handle(self, function: Callable[[], object]) -> None:
        """As Pub/Sub has it: what was not acknowledged comes again, until it is."""
        self.depth += 1
        try:
            for _ in range(100):
                try:
                    function()
                except (Died, TemporaryError):
                    self.wait(1)
                    continue
                return
            raise AssertionError("delivered a hundred times in vain")
        finally:
            self.depth -= 1

    def others_run(self) -> None:
        """The user among them, some time after he has made up his mind."""
        if self.is_to_be_cancelled and self.misfortune.strikes(CANCELS):
            self.is_to_be_cancelled = False
            self.handle(lambda: cancel.handle(STUDY, "the user", self.deps))
        if self.depth < DEPTH_MAX and (message := self.bus.take()):
            self.deliver_one(message)

    def deliver_one(self, message: Message) -> None:
        if message.topic == topics.TUNE:
            self.handle(lambda: tune.handle(codec.tune(message.data), self.suggester, self.deps))
        elif message.data != codec.encode_orphan_search():
            self.handle(lambda: provision.handle(codec.provision(message.data), self.machines, self.deps))

    def deliver(self) -> None:
        while message := self.bus.take():
            self.deliver_one(message)

    def sweep(self) -> None:
        self.handle(lambda: sweep.handle(self.deps))

    def agent_speaks(self) -> None:
        """Of a trial's machine, if it is there: in its program's name, or in its own."""
        running = [job for job in self.store.live_jobs() if job.trial_of]
        if not running:
            return
        trial = self.trial(self.number(self.misfortune.rng.choice(running)))
        vm = trial.vm(CHIEF)
        if vm is None or vm.directive is None:
            return
        kind, said = self.misfortune.rng.choice(WORDS)
        self.handle(lambda: self.say(trial, kind, said))
        self.now = max(self.now, trial.now)
        self.fleet.clock = lambda: self.now

    def say(self, trial: World, kind: str, said: dict[str, object]) -> None:
        trial.__class__ = Speaking
        trial.__dict__["wild"] = self
        if trial.vm(CHIEF):
            trial.tell(kind, CHIEF, **said)

    @staticmethod
    def number(job: Job) -> int:
        assert job.trial_of is not None
        return job.trial_of.number


class Speaking(Study):
    """A trial's world, whose functions meet the same misfortunes."""

    @property
    def deps(self) -> Deps:
        wild: Wild = self.__dict__["wild"]
        return wild.deps


WORDS: list[tuple[str, dict[str, object]]] = [
    ("vm-ready", {}),
    ("vm-ready", {}),
    ("replica-exit", {"cause": "process", "exit_status": 0, "metric": {"value": 0.5, "step": 1}}),
    ("replica-exit", {"cause": "process", "exit_status": 0}),
    ("replica-exit", {"cause": "process", "exit_status": 1}),
    ("replica-exit", {"cause": "install", "exit_status": 1}),
    ("maintenance", {"cause": "preemption"}),
]


def check(study: Wild) -> None:
    loaded = study.store.load_attempt(STUDY)
    assert loaded is not None
    assert fold(study.store.ledger(STUDY)) == loaded.state
    tuning = study.tuning
    live = [job for job in study.store.live_jobs() if job.trial_of]
    assert len(live) <= tuning.max_parallel or study.has_ended
    assert len(tuning.trials) <= planned(tuning)
    assert len({trial.values for trial in tuning.trials}) == len(tuning.trials)
    assert [trial.number for trial in tuning.trials] == list(range(1, len(tuning.trials) + 1))
    for trial in tuning.trials:
        job = study.store.load_attempt(trial_id(STUDY, trial.number))
        if job is not None:
            assert job.state.job.trial_of is not None
            assert tuple(each.value for each in job.state.job.trial_of.assigned) == trial.values
            assert fold(study.store.ledger(job.state.job.job_id)) == job.state
            assert not trial.state.is_terminal or trial.state == job.state.job.state.value


def in_the_end(study: Wild) -> None:
    """Without faults any more, and with programs that do well."""
    study.misfortune.end()
    for _ in range(40):
        study.wait(60)
        study.sweep()
        study.deliver()
        assert not (study.has_ended and study.store.live_jobs()), "a trial outlives its tuning job"
        for job in study.store.live_jobs():
            if job.trial_of and study.trial(study.number(job)).vm(CHIEF):
                trial = study.trial(study.number(job))
                trial.tell("vm-ready", CHIEF)
                trial.tell("replica-exit", CHIEF, cause="process", exit_status=0)
                study.now = max(study.now, trial.now)
                study.fleet.clock = lambda: study.now
        study.deliver()
        if study.has_ended and not study.store.live_jobs() and not study.store.jobs_with_pending():
            return
    raise AssertionError(f"{study.state}, live: {[job.job_id for job in study.store.live_jobs()]}")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_a_study_is_what_its_ledger_says_and_ends_with_all_its_trials(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - as above
    misfortune = Misfortune(rng)
    study = Wild(bus=WildBus(misfortune), misfortune=misfortune)
    spec = a_tuning_spec(
        maxTrials=rng.randint(1, 6), maxParallelTrials=rng.randint(1, 3), maxFailedTrials=rng.choice((0, 1, 2, 9))
    )
    study.handle(lambda: study.submit(spec))
    steps = rng.randrange(STEPS)
    cancelled_at = rng.randrange(STEPS // 4) if rng.random() < 0.5 else None
    for step in range(steps):
        what = rng.random()
        study.is_to_be_cancelled |= step == cancelled_at
        if what < 0.5:
            study.others_run()
        elif what < 0.9:
            study.agent_speaks()
        else:
            study.wait(rng.choice((1, 60)))
            study.sweep()
        check(study)
    in_the_end(study)
    check(study)
    assert study.fleet.list_all() == ()
    assert all(trial.state.is_terminal for trial in study.tuning.trials)
