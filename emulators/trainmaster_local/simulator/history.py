"""One simulated history: from the submission of its jobs until they and all VMs have ended.

The flows, rules and stores are those of the product or pass its contract tests. Clouds, agents,
programs and time are simulated, with faults drawn from a seed. After each step, invariants compare
what the control plane did with what really happened; a seed repeats a history exactly.

    0 ─── jobs submitted, faults ─── faults_s ─── no faults ─── horizon_s

All jobs have to end, and all VMs to be gone, before `horizon_s`: otherwise that is a violation.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from trainmaster.messaging import topics
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.invariants.global_invariants import (
    GlobalInvariants,
    check_submissions,
)
from trainmaster_local.simulator.invariants.job_invariants import JobInvariants
from trainmaster_local.simulator.invariants.machine_set_invariants import check_kept
from trainmaster_local.simulator.invariants.notification_invariants import check_notifications
from trainmaster_local.simulator.scenarios.fault_profiles import Profile
from trainmaster_local.simulator.scenarios.generator import PACKAGE_URI, draw_scenario, rng_of
from trainmaster_local.simulator.scenarios.scenario import HistoryError, Outcome, Scenario
from trainmaster_local.simulator.world.agent import SimAgent
from trainmaster_local.simulator.world.bus import SimBus
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.fleet import SimFleet
from trainmaster_local.simulator.world.functions import Functions
from trainmaster_local.simulator.world.metrics import SimMetrics
from trainmaster_local.simulator.world.programs import Training
from trainmaster_local.simulator.world.user_actions import UserActions
from trainmaster_local.simulator.world.vm import SimVm, VmPool
from trainmaster_local.simulator.world.vm_faults import VmFaults

SWEEP_S: Final = 60.0
"""Interval of Cloud Scheduler's calls of the sweep."""
TRACE_LINES_SHOWN: Final = 120
"""Last lines of the trace in the error of a history that went wrong."""


class History:
    """The parts of one history, wired together. `rng` is the generator that drew the scenario."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.scenario = scenario
        self.context = context = Context(rng, scenario.profile)
        self.store = MemoryStore()
        self.bus = SimBus(context)
        self.trainings = {
            job.job_id: Training(
                context, job.plan, job.duration_s, job.checkpoint_s, job.is_synchronous
            )
            for job in scenario.jobs
        }
        self.pool = VmPool(context, self._make_agents)
        self.fleet = SimFleet(
            context, self.pool, replays_requests=scenario.profile.replays_requests
        )
        self.jobs = {
            job_id: JobInvariants(context, self.store, self.pool, training.ends, job_id)
            for job_id, training in self.trainings.items()
        }
        self.fleet.on_create = lambda vm: self.jobs[vm.job_id].vms.check_creation(vm)
        self.fleet.on_delete = self._check_deletion
        self.invariants = GlobalInvariants(context, self.pool, self.jobs, scenario.limits)
        self.objects = MemoryObjects()
        self.objects.write(PACKAGE_URI, b"", content_type="application/gzip")
        self.users = UserActions(context, self.bus, self.objects)
        self.functions = Functions(
            context,
            self.store,
            self.bus,
            self.fleet,
            self.objects,
            on_change=self.invariants.check_commit,
            limits=scenario.limits,
            metrics=SimMetrics(context, self.pool),
        )
        self.bus.deliver = self.functions.deliver
        self.vm_faults = VmFaults(context, self.pool, self.bus)
        context.scheduler.after_each = self._check_action

    def run(self) -> None:
        """Run until everything has ended.

        Raises ViolationError, or the unexpected exception of a flow.
        """
        scenario = self.scenario
        scheduler = self.context.scheduler
        for job in scenario.jobs:
            self.users.plan(job)
        scheduler.after(self.context.between(0, SWEEP_S), self._sweep)
        scheduler.after(scenario.faults_s, self._end_faults)
        scheduler.run_until(scenario.horizon_s, stop_when=self._is_over)
        self.invariants.check_end()
        check_submissions(self.users.submissions, self.store, self.objects)
        for job_id in self.jobs:
            check_notifications(job_id, self.bus.notifications, self.store.ledger(job_id))
        # A refused submission is kept, so that its user can correct and replay it: see the check
        # above.
        lost = [(source, data) for source, data in self.bus.dead_letters if source != "submit"]
        if lost:
            raise ViolationError(f"dead letters: {lost}")

    def outcome(self, *, digest: bool = False) -> Outcome:
        """Return the result of the history, mostly of its first job; with a hash of its trace if
        `digest`.
        """
        job_id = self.scenario.jobs[0].job_id
        invariants = self.jobs[job_id]
        if invariants.job is None:
            raise ViolationError("no job was ever stored")
        vms = [vm for vm in self.pool.past if vm.job_id == job_id]
        return Outcome(
            state=invariants.job.state,
            message=invariants.job.error_message,
            wall_s=invariants.ended_s or self.context.now,
            vm_s=sum((vm.gone_s or self.context.now) - vm.created_s for vm in self.pool.past),
            lost_s=self.trainings[job_id].lost_s,
            attempts=invariants.job.attempt,
            replaced_vms=len(vms) - len({vm.observed.name for vm in vms}),
            decisions=Counter(entry.decision.action.kind for entry in self.store.ledger(job_id)),
            steps=len(self.context.trace_lines),
            digest=self.context.digest() if digest else "",
            states=Counter(other.job.state.value for other in self.jobs.values() if other.job),
        )

    def _make_agents(self, vm: SimVm) -> tuple[SimAgent, ...]:
        """Return an agent for each host of the VM; plan the VM's faults when it first boots."""
        training = self.trainings[vm.job_id]
        hosts = range(vm.hosts) if vm.hosts > 1 else (None,)  # only a TPU slice numbers its hosts
        agents = tuple(
            SimAgent(vm, host, training, self.bus, self.context, self.pool.hand_over)
            for host in hosts
        )
        if not vm.agents:
            self.vm_faults.plan(vm)
        return agents

    def _check_deletion(self, vm: SimVm) -> None:
        """Check that a VM which is about to be deleted is not needed any more.

        A job may keep its machines for the next one when it ends. Such a kept VM may not be
        deleted, nor one that the job which holds the machines now desires.
        """
        holder = check_kept(vm, self.store) or vm.job_id
        self.jobs[holder].check_deletion(vm)

    def _sweep(self) -> None:
        """Publish the message of Cloud Scheduler, and plan the next one."""
        self.bus.publish(topics.SWEEP, b"{}", attributes={})
        self.context.scheduler.after(SWEEP_S, self._sweep)

    def _check_action(self) -> None:
        """Check the invariants; fail early if the history is stuck."""
        invariants = self.invariants
        now = self.context.now
        quiet_s = self.scenario.quiet_s
        invariants.check_action()
        last_event_s = max(self.scenario.faults_s, invariants.last_commit_s)
        is_quiet = now > last_event_s + quiet_s
        is_stuck = is_quiet and not invariants.has_ended
        if is_stuck:
            invariants.check_end()  # raises the violation that says what has not ended

    def _end_faults(self) -> None:
        """Stop all faults: from now on nothing fails, so every job has to end."""
        self.context.log("faults end")
        self.context.faults = self.context.faults.without_faults()

    def _is_over(self) -> bool:
        """Return whether nothing can happen any more: no VM, message, invocation, live job or
        pending effect of a decision is left.
        """
        return (
            not self.pool.present
            and not self.bus.in_flight
            and not self.functions.running
            and self.invariants.has_ended
            and not self.store.jobs_with_pending()
            and not self.store.open_notifications(limit=1)
        )


def run(seed: int, scenario: Scenario, rng: random.Random, *, digest: bool = False) -> Outcome:
    """Run one history. Raises HistoryError, which names the seed, whatever goes wrong."""
    history = History(scenario, rng)
    try:
        history.run()
        return history.outcome(digest=digest)
    except Exception as error:
        raise HistoryError(
            seed, scenario, error, history.context.format_trace(TRACE_LINES_SHOWN)
        ) from error


def run_seed(seed: int, profile: Profile, *, digest: bool = False) -> Outcome:
    """Run the history of this seed under this profile. Raises HistoryError."""
    rng = rng_of(seed, profile)
    return run(seed, draw_scenario(rng, profile), rng, digest=digest)
