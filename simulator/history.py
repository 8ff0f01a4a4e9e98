"""One history: a job from its submission to its end, and until nothing of it is left.

0 ─── submitted ─── faults ─── faults_s ─── none any more ─── ended, and every VM gone ─── or, at horizon_s: stuck
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from shared import topics
from shared.core.jobs import JobState, Plan
from shared.memory.store import MemoryStore
from simulator.agent import SimAgent
from simulator.bus import SimBus
from simulator.context import Context
from simulator.functions import CANCEL, Functions
from simulator.machines import SimFleet, SimVm
from simulator.misfortunes import Misfortunes
from simulator.profiles import Profile
from simulator.training import Training
from simulator.watch import ViolationError, Watch

SWEEP_S: Final = 60.0
TRACE_LINES: Final = 120


@dataclass(frozen=True, slots=True)
class Scenario:
    """`document` is the message to topic submit; `plan` what it means. Times in seconds of virtual time.

    `quiet_s`: once the faults are over, a job to which nothing happens for so long is stuck.
    """

    job_id: str
    document: bytes
    plan: Plan
    profile: Profile
    duration_s: float
    checkpoint_s: float
    is_synchronous: bool = True
    faults_s: float = 300.0
    horizon_s: float = 4000.0
    quiet_s: float = 700.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the job. `vm_s`: seconds of all its VMs; `lost_s`: training done and thrown away."""

    state: JobState
    message: str | None
    wall_s: float
    vm_s: float
    lost_s: float
    attempts: int
    verdicts: Counter[str]
    steps: int
    digest: str


class HistoryError(AssertionError):
    """A history that broke an invariant, or a flow that raised what it must not. Its text replays it."""

    def __init__(self, seed: int, scenario: Scenario, cause: Exception, trace: str) -> None:
        super().__init__(
            f"seed {seed}, profile {scenario.profile.name}: {type(cause).__name__}: {cause}\n"
            f"{scenario.document.decode()}\n{scenario.duration_s:.0f} s of training, a checkpoint every "
            f"{scenario.checkpoint_s:.0f} s, {'synchronous' if scenario.is_synchronous else 'each for itself'}\n"
            f"replay: python -m simulator --seed {seed} --profile {scenario.profile.name}\n{trace}"
        )
        self.seed = seed
        self.cause = cause


class History:
    """The parts of one history, wired together. `rng` has drawn the scenario and goes on from there."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.scenario = scenario
        self.context = context = Context(rng, scenario.profile)
        self.store = MemoryStore()
        self.bus = SimBus(context)
        self.training = Training(
            context,
            scenario.plan.seats,
            scenario.duration_s,
            scenario.checkpoint_s,
            scenario.plan.primary,
            scenario.is_synchronous,
        )
        self.fleet = SimFleet(context, self._boot, self._sleep, replays_requests=scenario.profile.replays_requests)
        self.watch = Watch(context, self.store, self.fleet, scenario.job_id)
        self.fleet.deleted = self.watch.deleted
        self.functions = Functions(context, self.store, self.bus, self.fleet, self.watch.changed)
        self.bus.deliver = self.functions.deliver
        self.misfortunes = Misfortunes(context, self.fleet, self.bus)
        context.scheduler.happened = self._happened

    def run(self) -> None:
        """Raises ViolationError, or whatever a flow should not have raised."""
        scenario, scheduler = self.scenario, self.context.scheduler
        self.bus.publish(topics.SUBMIT, scenario.document, {"source": "gs://b/jobs/j.yaml#1"})
        scheduler.after(self.context.between(0, SWEEP_S), self._sweep)
        scheduler.after(scenario.faults_s, self._calm_down)
        if self.context.chance(scenario.profile.cancel):
            scheduler.after(
                self.context.between(1, 200), lambda: self.bus.publish(CANCEL, scenario.job_id.encode(), {})
            )
        scheduler.run_until(scenario.horizon_s, over=self._is_over)
        self.watch.finish()

    def outcome(self, *, digest: bool = False) -> Outcome:
        job = self.watch.job
        if job is None:
            raise ViolationError("no job was ever stored")
        ledger = self.store.ledger(job.job_id)
        return Outcome(
            state=job.state,
            message=job.error_message,
            wall_s=self.watch.ended_s or self.context.now,
            vm_s=sum((vm.gone_s or self.context.now) - vm.created_s for vm in self.fleet.past),
            lost_s=self.training.lost_s,
            attempts=job.attempt,
            verdicts=Counter(entry.verdict.kind for entry in ledger),
            steps=len(self.context.lines),
            digest=self.context.digest() if digest else "",
        )

    def _boot(self, vm: SimVm) -> SimAgent:
        agent = SimAgent(vm, self.training, self.bus, self.context)
        self.misfortunes.await_vm(vm)
        return agent

    def _sleep(self, seconds: float) -> None:
        self.functions.sleep(seconds)

    def _sweep(self) -> None:
        self.bus.publish(topics.SWEEP, b"{}", {})
        self.context.scheduler.after(SWEEP_S, self._sweep)

    def _happened(self) -> None:
        self.watch.machines()
        now, quiet_s = self.context.now, self.scenario.quiet_s
        if now > self.scenario.faults_s + quiet_s and now > self.watch.changed_s + quiet_s and not self.watch.has_ended:
            self.watch.finish()

    def _calm_down(self) -> None:
        self.context.say("calm")
        self.context.faults = self.context.faults.without_faults()

    def _is_over(self) -> bool:
        return (
            self.watch.has_ended
            and not self.fleet.there
            and not self.bus.in_flight
            and not self.functions.running
            and not self.store.pending(self.scenario.job_id)
        )


def run(seed: int, scenario: Scenario, rng: random.Random, *, digest: bool = False) -> Outcome:
    """Raises HistoryError."""
    history = History(scenario, rng)
    try:
        history.run()
        return history.outcome(digest=digest)
    except Exception as error:
        raise HistoryError(seed, scenario, error, history.context.trace(TRACE_LINES)) from error
