"""One history: jobs from their submission to their end, and until nothing of them is left.

0 ─── submitted ─── faults ─── faults_s ─── none any more ─── ended, and every VM gone ─── or, at horizon_s: stuck
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from shared.memory.objects import MemoryObjects
from shared.memory.store import MemoryStore
from shared.messaging import topics
from simulator.invariants.global_invariants import Overseer
from simulator.invariants.job_invariants import ViolationError, Watch
from simulator.scenarios.scenario import HistoryError, Outcome, Scenario
from simulator.world.agent import SimAgent
from simulator.world.bus import SimBus
from simulator.world.context import Context
from simulator.world.fleet import SimFleet, SimVm
from simulator.world.functions import Functions
from simulator.world.programs import Training
from simulator.world.user_actions import Hands
from simulator.world.vm_faults import Misfortunes

SWEEP_S: Final = 60.0
TRACE_LINES: Final = 120


class History:
    """The parts of one history, wired together. `rng` has drawn the scenario and goes on from there."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.scenario = scenario
        self.context = context = Context(rng, scenario.profile)
        self.store = MemoryStore()
        self.bus = SimBus(context)
        self.trainings = {
            job.job_id: Training(context, job.plan, job.duration_s, job.checkpoint_s, job.is_synchronous)
            for job in scenario.jobs
        }
        self.fleet = SimFleet(context, self._boot, self._sleep, replays_requests=scenario.profile.replays_requests)
        self.watches = {job.job_id: Watch(context, self.store, self.fleet, job.job_id) for job in scenario.jobs}
        self.fleet.deleted = lambda vm: self.watches[vm.job_id].deleted(vm)
        self.overseer = Overseer(context, self.fleet, self.watches, scenario.limits)
        objects = MemoryObjects()
        self.hands = Hands(context, self.bus, objects)
        self.functions = Functions(
            context, self.store, self.bus, self.fleet, objects, self.overseer.changed, scenario.limits
        )
        self.bus.deliver = self.functions.deliver
        self.misfortunes = Misfortunes(context, self.fleet, self.bus)
        context.scheduler.happened = self._happened

    def run(self) -> None:
        """Raises ViolationError, or whatever a flow should not have raised."""
        scenario, scheduler = self.scenario, self.context.scheduler
        for job in scenario.jobs:
            self.hands.submit(job)
        scheduler.after(self.context.between(0, SWEEP_S), self._sweep)
        scheduler.after(scenario.faults_s, self._calm_down)
        scheduler.run_until(scenario.horizon_s, over=self._is_over)
        self.overseer.finish()
        self.hands.check(self.store)

    def outcome(self, *, digest: bool = False) -> Outcome:
        first = self.scenario.jobs[0].job_id
        watch = self.watches[first]
        if watch.job is None:
            raise ViolationError("no job was ever stored")
        ledger = self.store.ledger(first)
        return Outcome(
            state=watch.job.state,
            message=watch.job.error_message,
            wall_s=watch.ended_s or self.context.now,
            vm_s=sum((vm.gone_s or self.context.now) - vm.created_s for vm in self.fleet.past),
            lost_s=self.trainings[first].lost_s,
            attempts=watch.job.attempt,
            decisions=Counter(entry.decision.kind for entry in ledger),
            steps=len(self.context.lines),
            digest=self.context.digest() if digest else "",
            states=Counter(each.job.state.value for each in self.watches.values() if each.job),
        )

    def _boot(self, vm: SimVm) -> tuple[SimAgent, ...]:
        training = self.trainings[vm.job_id]
        hosts = range(vm.hosts) if vm.hosts > 1 else (None,)
        agents = tuple(SimAgent(vm, host, training, self.bus, self.context) for host in hosts)
        self.misfortunes.await_vm(vm)
        return agents

    def _sleep(self, seconds: float) -> None:
        self.functions.sleep(seconds)

    def _sweep(self) -> None:
        self.bus.publish(topics.SWEEP, b"{}", {})
        self.context.scheduler.after(SWEEP_S, self._sweep)

    def _happened(self) -> None:
        overseer, now, quiet_s = self.overseer, self.context.now, self.scenario.quiet_s
        overseer.machines()
        if now > self.scenario.faults_s + quiet_s and now > overseer.changed_s + quiet_s and not overseer.has_ended:
            overseer.finish()

    def _calm_down(self) -> None:
        self.context.say("calm")
        self.context.faults = self.context.faults.without_faults()

    def _is_over(self) -> bool:
        return (
            not self.fleet.there
            and not self.bus.in_flight
            and not self.functions.running
            and self.overseer.has_ended
            and not self.store.jobs_with_pending()
        )


def run(seed: int, scenario: Scenario, rng: random.Random, *, digest: bool = False) -> Outcome:
    """Raises HistoryError."""
    history = History(scenario, rng)
    try:
        history.run()
        return history.outcome(digest=digest)
    except Exception as error:
        raise HistoryError(seed, scenario, error, history.context.trace(TRACE_LINES)) from error
