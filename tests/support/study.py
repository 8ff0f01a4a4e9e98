"""A tuning job in a `World`, and the messages of its trials' agents."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.jobs import CHIEF, a_tuning_spec
from tests.support.world import World
from trainmaster.core.ledger import fold
from trainmaster.core.model.tuning import Tuning, trial_id

STUDY = "digits_1"


@dataclass
class Study(World):
    """A world whose job is a tuning job. `trial` returns the world of one of its trials."""

    set_ids: dict[int, str] = field(default_factory=dict)
    """Machine sets that trials have taken."""

    def trial(self, number: int) -> World:
        """Return the same world, with the trial of this number as its job."""
        return World(
            trial_id(self.job_id, number),
            self.now,
            self.store,
            self.bus,
            self.fleet,
            self.limits,
            self.suggester,
            taken_set_id=self.set_ids.get(number, ""),
        )

    def send_from_trial(self, number: int, kind: str, **more: object) -> None:
        trial = self.trial(number)
        trial.send(kind, CHIEF, **more)
        self.now = trial.now
        self.fleet.clock = lambda: self.now

    def report_ready(self, *numbers: int) -> None:
        for number in numbers:
            self.send_from_trial(number, "vm-ready")
        self.deliver()

    def write_metric(self, number: int, *values: float, attempt: int = 1) -> None:
        """Let the agent of a trial write measurements at the steps 100, 200, … to its VM's guest
        attribute.
        """
        vm = self.trial(number).vm(CHIEF)
        points = [[100 * step, value] for step, value in enumerate(values, start=1)]
        self.fleet.report_metric(vm.name, json.dumps({"attempt": attempt, "measurements": points}))

    def complete_trial(self, number: int, value: float | None = None) -> None:
        metric = {} if value is None else {"metric": {"value": value, "step": 100}}
        self.send_from_trial(number, "replica-exit", cause="process", exit_status=0, **metric)
        self.deliver()

    def fail_trial(self, number: int) -> None:
        self.send_from_trial(
            number, "replica-exit", cause="install", exit_status=1, tail="no such package"
        )
        self.deliver()

    def start_tuning(self, **hyperparameters: Any) -> None:
        self.submit(a_tuning_spec(**hyperparameters))
        self.deliver()

    @property
    def tuning(self) -> Tuning:
        assert self.job.tuning is not None
        return self.job.tuning

    @property
    def states(self) -> list[str]:
        return [trial.state.value for trial in self.tuning.trials]

    def check(self) -> None:
        """Check the invariants of the tuning job and of all of its trials."""
        super().check()
        live = [job for job in self.store.live_jobs().jobs if job.trial_of]
        assert len(live) <= self.tuning.max_parallel
        for trial in self.tuning.trials:
            loaded = self.store.load_attempt(trial_id(self.job_id, trial.number))
            if loaded is not None:
                assert fold(self.store.ledger(loaded.state.job.job_id)) == loaded.state


def run_whole_study(study: Study) -> None:
    """Run a tuning job of three trials until all have succeeded."""
    study.start_tuning()
    for number in (1, 2, 3):
        study.report_ready(number)
        study.complete_trial(number, number / 10)
    assert (study.state, study.states) == ("SUCCEEDED", ["SUCCEEDED"] * 3)
    study.check()
