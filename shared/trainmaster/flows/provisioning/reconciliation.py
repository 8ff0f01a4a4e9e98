"""Make the VMs of a job equal what its stored state requires.

`flows.provision` calls `reconcile` for each message of the topic `provision`.

    is the entry pending? ──► take the job's lease ──► load ──► list VMs ──► plan ──► no step: done
      no: done before           held: its holder        ▲          ▲           │
                                does this work          │          │           ▼
                                                        │          │    execute the steps
                                                        │          └── none ───┤
                                                        └── a later entry ─────┘

A reconciliation is level-triggered: it compares the stored state with the listed VMs, so it may run
twice, late, concurrently, or stop halfway. It is done only when VMs that were listed after its last
step need no further step that may be taken now, and no entry was committed since the state was
loaded. Until then it keeps that state: reading a gang again is expensive. VMs may still be missing
then, for lack of capacity, or agents may have to report: the sweep, the check of all jobs every
minute, continues.

`delivery` has the lease, and what happens when a delivery cannot finish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Final

from trainmaster.core.events import AllReady
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.machine_set import MachineSet, ReleaseCause
from trainmaster.core.model.members import is_start_missed, may_run_where_requested
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.kept import all_idle, is_later, kept_steps, lost_vms
from trainmaster.core.reconcile.plan import delete_newer, plan
from trainmaster.core.reconcile.steps import (
    Delete,
    Direct,
    ReportGrowth,
    ReportLoss,
    ReportMissingMember,
    Steps,
)
from trainmaster.errors import RefusedError
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning import admission, kept_machines
from trainmaster.flows.provisioning.admission import Admission
from trainmaster.flows.provisioning.delivery import LEASE_S, Delivery
from trainmaster.flows.provisioning.execute_steps import (
    Inserts,
    execute_step,
    record_capacity_errors,
    record_empty_zones,
    record_out_of_reach,
    record_queued_vms,
    record_unreachable_zone,
)
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.flows.provisioning.heartbeats import find_silent, suspend_timeouts
from trainmaster.flows.provisioning.held_rounds import begin_round
from trainmaster.flows.provisioning.measurements import record_measurements
from trainmaster.flows.provisioning.unreachable_zones import explain_wait, hidden_zones
from trainmaster.flows.provisioning.vm_metadata import vm_metadata
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import ProvisionRequest, TuneRequest, encode_tune
from trainmaster.messaging.json_log import REFUSED_CALL
from trainmaster.ports import Loaded, Reached, reached

CYCLES_MAX: Final = 8
"""Cycles in one delivery: each lists the VMs, plans the steps and executes them once."""
STEPS_MAX: Final = 500
"""Steps in one cycle.

With 24 at a time, each at most the fleet's bounded time of a few seconds, about a minute.
"""
WAIT_MIN_S: Final = 0.25
WAIT_MAX_S: Final = 4.0
"""Bounds of the time between two cycles that wait for VMs, or only write directives.

It doubles: the exits of a gang arrive over seconds, and are provisioned in a few batches.
"""

_log = logging.getLogger(__name__)


def reconcile(
    request: ProvisionRequest, fleet_deps: FleetDeps, deps: Deps, message_id: str
) -> None:
    """Take the job's lease and reconcile, unless the request is done or another delivery holds the
    lease.

    `message_id` names the holder of the lease.
    """
    if request.entry_key is not None and not deps.store.is_pending(
        request.job_id, request.entry_key
    ):
        return
    now = deps.clock()
    expires_at = now + timedelta(seconds=LEASE_S)
    lease = deps.store.take_lease(request.job_id, now, expires_at, message_id)
    if lease is None:
        _log.info("%s: another delivery provisions this job", request.job_id)
        return
    delivery = Delivery(request, deps, lease, started_at=now, expires_at=expires_at)
    try:
        _Cycles(delivery, fleet_deps, deps).run()
    except Exception as error:
        delivery.release_quietly()
        if isinstance(error, RefusedError):
            record_out_of_reach(request.job_id, str(error), deps)
        raise


class _Next(Enum):
    """The reaction to a cycle."""

    CYCLE = auto()  # another cycle
    END = auto()  # no step is left that may be taken now
    SWEEP = auto()  # only time can help: the next sweep continues


@dataclass(slots=True)
class _Cycles:
    """The cycles of one delivery."""

    delivery: Delivery
    fleet_deps: FleetDeps
    deps: Deps
    inserts: Inserts = field(default_factory=Inserts)
    waits: int = 0
    """Cycles that were followed by a pause."""
    has_read_heartbeats: bool = False
    """Whether the delivery has looked for silent agents, which it does once."""
    heartbeats: dict[str, datetime | None] = field(default_factory=dict)
    """The heartbeats that were read of VMs with a startup timeout, by instance id."""

    def run(self) -> None:
        """Run cycles until nothing is left to do, only time can help, or the delivery is over."""
        delivery = self.delivery
        for _ in range(CYCLES_MAX):
            if not delivery.extend_lease():
                return  # the lease expired, and another delivery has taken it
            loaded = self._with_start_recorded(delivery.loaded or delivery.load())
            job = loaded.state.job
            if job.tuning is not None:
                self._hand_to_tune(job)
                return
            following = self._run_cycle(loaded)
            may_be_over = following is not _Next.CYCLE
            if may_be_over or delivery.may_have_changed():
                pending = self.deps.store.pending_entries(delivery.loaded or loaded)
                has_changed = any(key != delivery.verdict_key for key in pending.later)
                if may_be_over and not has_changed:
                    delivery.finish(loaded, pending, is_done=following is _Next.END)
                    return
                delivery.pending_count = len(pending.included) + len(pending.later)
                if has_changed:
                    delivery.loaded = None
            if delivery.is_late:
                break
        delivery.continue_later()

    def _with_start_recorded(self, loaded: Loaded) -> Loaded:
        """Record that all replicas are ready if the function that should have died before, and
        return the state after that.
        """
        if not is_start_missed(loaded.state):
            return loaded
        job = loaded.state.job
        all_ready = AllReady(job.job_id, job.attempt, self.deps.clock(), floor=job.placement.floor)
        record(all_ready, self.deps)
        return self.delivery.load()

    def _hand_to_tune(self, job: Job) -> None:
        """Request `tune` for a tuning job, which has no VMs: its trials are jobs with VMs."""
        if self.delivery.is_from_sweep:
            record_measurements(job, self.fleet_deps.fleet, self.fleet_deps.run_all, self.deps)
        self.deps.bus.publish(topics.TUNE, encode_tune(TuneRequest(job.job_id)), attributes={})
        self.deps.store.release_lease(self.delivery.lease)

    def _run_cycle(self, loaded: Loaded) -> _Next:
        """List the VMs, plan the steps and execute them once."""
        following = self._before_listing(loaded)
        if following is not None:
            return following
        job = loaded.state.job
        fleet = self.fleet_deps.fleet
        listing = reached(lambda: fleet.list_vms(job.set_id, job.tpu_zones, job.zones_used))
        if listing.refusal:
            extra = {"action": REFUSED_CALL, "job_id": job.job_id}
            _log.warning("%s", listing.refusal, extra=extra)
        if _has_newer_vms(loaded.state, listing.listed):
            return self._delete_newer(listing.listed)
        return self._approach(loaded, listing)

    def _approach(self, loaded: Loaded, listing: Reached[Vm]) -> _Next:
        """Take the steps from the listed VMs to those that the state requires."""
        state = loaded.state
        job = state.job
        vms = listing.listed
        now = self.deps.clock()
        if not listing.unreachable and record_empty_zones(job, vms, self.deps):
            self.delivery.loaded = None
        hidden = hidden_zones(job, listing.unreachable)
        steps = plan(state, vms, now, self.inserts.created, may_start=not hidden)
        if job.zone in listing.unreachable:
            if not may_run_where_requested(state) and record_unreachable_zone(
                steps, job, listing.refusal, self.deps
            ):
                self.delivery.loaded = None
                return _Next.CYCLE
            steps = steps.without_missing()
        elif not hidden and begin_round(self.delivery, loaded, steps):
            return _Next.CYCLE
        explain_wait(state, steps, listing, self.deps)
        steps = suspend_timeouts(steps, state, vms, self.fleet_deps, now, self.heartbeats)
        if steps.queued_vms:
            record_queued_vms(steps.queued_vms, job, self.deps)
        if steps.is_done:
            steps = self._with_silent_agents(steps, state, vms)
        if not steps.is_done:
            return self._progress(steps, loaded)
        # An unreachable zone may have VMs to delete.
        is_over = not listing.unreachable and self._is_released(job)
        return _Next.END if is_over else _Next.SWEEP

    def _with_silent_agents(self, steps: Steps, state: State, vms: tuple[Vm, ...]) -> Steps:
        """Add the losses of VMs whose agents are silent, once in a delivery for the sweep."""
        if self.has_read_heartbeats or not self.delivery.is_from_sweep:
            return steps
        self.has_read_heartbeats = True
        silent = find_silent(state, vms, self.fleet_deps, self.deps.clock())
        return replace(steps, steps=silent) if silent else steps

    def _is_released(self, job: Job) -> bool:
        """Whether nothing is left of an ended job besides VMs, such as placement policies, whose
        deletion may take long.
        """
        return not job.state.is_terminal or self.fleet_deps.fleet.release(job)

    def _delete_newer(self, vms: tuple[Vm, ...]) -> _Next:
        """Load the state again, and delete the VMs that are newer than that, too.

        Usually the first state was only out of date. VMs that are newer than a state that was read
        after they were listed exist if the database was restored to an earlier time.
        """
        loaded = self.delivery.load()
        if not loaded.state.holds_machines or loaded.state.keeps_machines:
            return _Next.CYCLE  # the VMs are those of the next holder
        steps = Steps(delete_newer(loaded.state, vms))
        for step in steps.steps:
            _log.warning(
                "a later state than the stored one ordered this VM or its incarnation: %s", step
            )
        return self._progress(steps, loaded) if steps.steps else _Next.CYCLE

    def _before_listing(self, loaded: Loaded) -> _Next | None:
        """Admit a job that is queued, and leave VMs alone that are kept for a next job, or that
        another job has taken.

        None: the VMs of the job must be compared with what it needs.
        """
        state = loaded.state
        job = state.job
        if job.state is JobState.QUEUED:
            return self._request_admission(job)
        machines = state.machine_set
        if machines is None or (state.holds_machines and not machines.is_kept):
            return None
        if not job.state.is_terminal:
            self.delivery.loaded = None  # it has ended since its own document was read
            return _Next.CYCLE
        return self._keep(loaded, machines) if state.holds_machines else _Next.END

    def _keep(self, loaded: Loaded, machines: MachineSet) -> _Next:
        """Let the machines idle that the ended job keeps for a next one, until their time is over
        or none of them is left. Those that are lost are kept no longer.
        """
        if self.deps.clock() >= machines.until:
            return self._release(machines)
        zones = loaded.state.job.zones_used
        vms, unreachable, _ = reached(
            lambda: self.fleet_deps.fleet.list_vms(machines.set_id, zones=zones)
        )
        if any(is_later(machines, vm) for vm in vms):
            return self._delete_later(vms)
        if not loaded.state.whole and not all_idle(machines, vms):
            self.delivery.load(whole=True)
            return _Next.CYCLE
        lost = lost_vms(loaded.state, machines, vms, is_complete=not unreachable)
        if lost:
            kept_machines.drop_lost(machines, lost, self.deps)
            return self._after_change()
        steps = Steps(kept_steps(loaded.state, machines, vms))
        return _Next.END if steps.is_done else self._progress(steps, loaded)

    def _release(self, machines: MachineSet) -> _Next:
        """Release the machines whose time is over."""
        kept_machines.release(machines, ReleaseCause.DEADLINE, self.deps)
        return self._after_change()

    def _after_change(self) -> _Next:
        """Go on with the machine set as it is now."""
        self.delivery.loaded = None
        self.delivery.has_progress = True
        return _Next.CYCLE

    def _delete_later(self, vms: tuple[Vm, ...]) -> _Next:
        """Load the state again, and delete the VMs that only a later holder than the stored one
        can have ordered: they exist if the database was restored to an earlier time.
        """
        loaded = self.delivery.load()
        machines = loaded.state.machine_set
        if machines is None or not loaded.state.keeps_machines:
            return _Next.CYCLE
        later = tuple(Delete(vm) for vm in vms if is_later(machines, vm))
        return self._progress(Steps(later), loaded) if later else _Next.CYCLE

    def _progress(self, steps: Steps, loaded: Loaded) -> _Next:
        """Execute the steps, or wait for VMs."""
        job = loaded.state.job
        is_recorded = steps.waits or self._execute(steps, job)
        if not is_recorded or steps.waits or all(isinstance(step, Direct) for step in steps.steps):
            self.deps.sleep(min(WAIT_MIN_S * 2**self.waits, WAIT_MAX_S))
            self.waits += 1
        return _Next.CYCLE

    def _request_admission(self, job: Job) -> _Next:
        """Admit the queued job if it fits.

        Nothing is left to do for a job that has to wait: the queue has it, and a later pass admits
        it.
        """
        self.delivery.loaded = None  # the admission decides about the first zone
        if not self.deps.limits:
            kept_machines.start(job, self.fleet_deps, self.deps)
            return _Next.CYCLE
        match admission.admit(job, self.fleet_deps, self.deps, self.delivery.lease.holder):
            case Admission.ADMITTED:
                return _Next.CYCLE
            case Admission.WAITS:
                return _Next.END
            case Admission.UNDECIDED:
                return _Next.SWEEP

    def _execute(self, steps: Steps, job: Job) -> bool:
        """Execute the steps. Return False if capacity errors wait for the end of another insert."""
        self.delivery.has_progress = True
        if any(
            isinstance(step, ReportLoss | ReportMissingMember | ReportGrowth)
            for step in steps.steps
        ):
            self.delivery.loaded = None
        deps = self.deps
        fleet_deps = self.fleet_deps
        metadata = partial(
            vm_metadata,
            job.placed,
            project=fleet_deps.project,
            address_book=fleet_deps.addresses,
            agent_files=fleet_deps.agent_files,
        )
        fleet_deps.run_all(
            [
                partial(
                    self._execute_in_time,
                    partial(
                        execute_step, step, job, fleet_deps.fleet, metadata, deps, self.inserts
                    ),
                )
                for step in steps.steps[:STEPS_MAX]
            ]
        )
        return record_capacity_errors(self.inserts, job, fleet_deps.fleet, deps)

    def _execute_in_time(self, step: Callable[[], None]) -> None:
        """Execute a step unless the delivery has taken too long.

        The next delivery executes the others.
        """
        if not self.delivery.is_late:
            step()


def _has_newer_vms(state: State, vms: tuple[Vm, ...]) -> bool:
    """Whether a later state has ordered some of the VMs.

    All VMs of an ended job are deleted, also those that idled while they were kept.
    """
    is_released = state.job.machines is not None and state.job.state.is_terminal
    return not is_released and bool(delete_newer(state, vms))
