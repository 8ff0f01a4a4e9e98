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
then, for lack of capacity, or agents may have to report: the sweep continues.

The lease saves work: of many requests about one job, one lists and plans, and the others end after
two reads. It is not needed for safety. A request that met the lease is not lost, because its ledger
entry is pending: the holder looks for new pending entries after it has released the lease, and the
sweep looks for them every minute. The holder is named by its message id: if its process dies,
Pub/Sub redelivers the message, and the redelivery takes the lease again.

A delivery that cannot finish is acknowledged, not refused: Pub/Sub slows a subscription down that
answers with errors. If it made progress it publishes its request again; if it could only wait, the
next sweep continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Final

from trainmaster.core.events import AllReady, End
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.machine_set import MachineSet, ReleaseCause
from trainmaster.core.model.members import (
    is_ready,
    is_start_missed,
    may_run,
    may_run_where_requested,
    members,
)
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import DirectiveAction, Vm
from trainmaster.core.reconcile.kept import all_idle, is_later, kept_steps, lost_vms
from trainmaster.core.reconcile.plan import delete_newer, plan
from trainmaster.core.reconcile.steps import (
    Delete,
    Direct,
    Readiness,
    ReportGrowth,
    ReportLoss,
    ReportMissingMember,
    Steps,
)
from trainmaster.core.rules.evidence import hold_key, round_key
from trainmaster.errors import PermanentError, RefusedError, TemporaryError
from trainmaster.flows.commit.history import expire_history
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning import admission, kept_machines
from trainmaster.flows.provisioning.admission import Admission
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
from trainmaster.flows.provisioning.measurements import record_measurements
from trainmaster.flows.provisioning.vm_metadata import vm_metadata
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import (
    ProvisionRequest,
    TuneRequest,
    encode_provision,
    encode_tune,
)
from trainmaster.messaging.json_log import REFUSED_CALL
from trainmaster.ports import Lease, Loaded, PendingEntries, reached

CYCLES_MAX: Final = 8
"""Cycles in one delivery: each lists the VMs, plans the steps and executes them once."""
DELIVERY_S: Final = 150.0
"""No cycle and no step begins later in a delivery than this.

It then ends well before its ack deadline of 300 s, even if Compute's rate limit refuses every step
for half a minute.
"""
STEPS_MAX: Final = 500
"""Steps in one cycle.

With 24 at a time, each at most the fleet's bounded time of a few seconds, about a minute.
"""
REQUESTS_MAX: Final = 4
"""How often a request is continued at once. After that, the sweep continues."""
WAIT_MIN_S: Final = 0.25
WAIT_MAX_S: Final = 4.0
"""Bounds of the time between two cycles that wait for VMs, or only write directives.

It doubles: the exits of a gang arrive over seconds, and are provisioned in a few batches.
"""
LEASE_S: Final = 120.0
"""Longer than a cycle.

If the holder died and its message is not redelivered, the sweep provisions the job later.
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
    delivery = _Delivery(request, fleet_deps, deps, lease, now, expires_at)
    try:
        delivery.run()
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
class _Delivery:
    """One delivery that holds the job's lease."""

    request: ProvisionRequest
    fleet_deps: FleetDeps
    deps: Deps
    lease: Lease
    started_at: datetime
    expires_at: datetime
    """When the lease expires."""
    inserts: Inserts = field(default_factory=Inserts)
    waits: int = 0
    """Cycles that were followed by a pause."""
    has_progress: bool = False
    """Whether any step but waiting was executed."""
    has_read_heartbeats: bool = False
    """Whether the delivery has looked for silent agents, which it does once."""
    heartbeats: dict[str, datetime | None] = field(default_factory=dict)
    """The heartbeats that were read of VMs with a startup timeout, by instance id."""
    placement_rounds: set[int] = field(default_factory=set)
    """The placement rounds that the delivery has seen.

    Several: it went on in a pass over the zones.
    """
    loaded: Loaded | None = None
    """The state, until it is known to have changed."""
    verdict_key: str | None = None
    """Key of the ledger entry of the verdict on a job's round, whose change `loaded` contains;
    None: it contains no such change.
    """
    pending_count: int = 0
    """Pending ledger entries when `loaded` was read, or fewer."""

    def run(self) -> None:
        """Run cycles until nothing is left to do, only time can help, or the delivery is over."""
        for _ in range(CYCLES_MAX):
            if not self._extend_lease():
                return  # the lease expired, and another delivery has taken it
            loaded = self._with_start_recorded(self.loaded or self._load())
            job = loaded.state.job
            if job.tuning is not None:
                self._hand_to_tune(job)
                return
            following = self._run_cycle(loaded)
            may_be_over = following is not _Next.CYCLE
            if may_be_over or self._may_have_changed(job.job_id):
                pending = self.deps.store.pending_entries(self.loaded or loaded)
                has_changed = any(key != self.verdict_key for key in pending.later)
                if may_be_over and not has_changed:
                    self._finish(loaded, pending, is_done=following is _Next.END)
                    return
                self.pending_count = len(pending.included) + len(pending.later)
                if has_changed:
                    self.loaded = None
            if self._is_late():
                break
        self._continue_later()

    def _with_start_recorded(self, loaded: Loaded) -> Loaded:
        """Record that all replicas are ready if the function that should have died before, and
        return the state after that.
        """
        if not is_start_missed(loaded.state):
            return loaded
        job = loaded.state.job
        all_ready = AllReady(job.job_id, job.attempt, self.deps.clock(), floor=job.placement.floor)
        record(all_ready, self.deps)
        return self._load()

    def _hand_to_tune(self, job: Job) -> None:
        """Request `tune` for a tuning job, which has no VMs: its trials are jobs with VMs."""
        is_from_sweep = self.request.entry_key is None
        if is_from_sweep:
            record_measurements(job, self.fleet_deps.fleet, self.fleet_deps.run_all, self.deps)
        self.deps.bus.publish(topics.TUNE, encode_tune(TuneRequest(job.job_id)), {})
        self.deps.store.release_lease(self.lease)

    def release_quietly(self) -> None:
        """Release the lease after an error. If that fails too, the lease expires."""
        try:
            self.deps.store.release_lease(self.lease)
        except TemporaryError as error:
            _log.warning("%s: the lease was not released: %s", self.request.job_id, error)

    def _may_have_changed(self, job_id: str) -> bool:
        """Whether entries may have been committed since `loaded` was read, for one read.

        Only the holder of the lease confirms entries, so their number does not fall meanwhile.
        """
        if self.loaded is None:
            return False  # the next cycle reads the state in any case
        return self.deps.store.count_pending(job_id) != self.pending_count

    def _load(self, *, whole: bool = False) -> Loaded:
        """Read the state: the whole attempt if it decides which VMs are needed, or if `whole`."""
        store = self.deps.store
        self.pending_count = store.count_pending(self.request.job_id)
        loaded = store.load_attempt(self.request.job_id, if_needed=not whole)
        if loaded is None:
            raise PermanentError(f"there is no job {self.request.job_id}")
        self.loaded = loaded
        self.verdict_key = None
        self.placement_rounds.add(loaded.state.job.placement.round)
        return loaded

    def _extend_lease(self) -> bool:
        """Extend the lease if less than half of it is left. False: another delivery holds it."""
        now = self.deps.clock()
        if self.expires_at - now >= timedelta(seconds=LEASE_S / 2):
            return True
        self.expires_at = now + timedelta(seconds=LEASE_S)
        lease = self.deps.store.extend_lease(self.lease, self.expires_at)
        self.lease = lease or self.lease
        return lease is not None

    def _run_cycle(self, loaded: Loaded) -> _Next:
        """List the VMs, plan the steps and execute them once."""
        state = loaded.state
        job = loaded.state.job
        fleet_deps = self.fleet_deps
        fleet = fleet_deps.fleet
        following = self._before_listing(loaded)
        if following is not None:
            return following
        vms, unreachable, refusal = reached(
            lambda: fleet.list_vms(job.set_id, job.tpu_zones, job.zones_used)
        )
        if refusal:
            _log.warning("%s", refusal, extra={"action": REFUSED_CALL, "job_id": job.job_id})
        if _has_newer_vms(state, vms):
            return self._delete_newer(vms)
        now = self.deps.clock()
        hidden = self._hidden_zones(job, vms, unreachable)
        steps = plan(state, vms, now, self.inserts.created, may_start=not hidden)
        if job.zone in unreachable:
            if not may_run_where_requested(state) and record_unreachable_zone(
                steps, job, refusal, self.deps
            ):
                self.loaded = None
                return _Next.CYCLE
            steps = steps.without_missing()
        elif not hidden and self._begin_round(loaded, steps):
            return _Next.CYCLE
        self._explain_wait(state, steps, vms, unreachable, hidden, refusal)
        steps = suspend_timeouts(steps, state, vms, fleet_deps, now, self.heartbeats)
        if steps.queued_vms:
            record_queued_vms(steps.queued_vms, job, self.deps)
        is_from_sweep = self.request.entry_key is None
        if steps.is_done and is_from_sweep and not self.has_read_heartbeats:
            self.has_read_heartbeats = True
            silent = find_silent(state, vms, fleet_deps, self.deps.clock())
            steps = replace(steps, steps=silent) if silent else steps
        if steps.is_done:
            # An unreachable zone may have VMs to delete. The deletion of what an ended job has
            # besides VMs (placement policies) may take long.
            is_released = not unreachable and (not job.state.is_terminal or fleet.release(job))
            return _Next.END if is_released else _Next.SWEEP
        return self._progress(steps, loaded)

    def _hidden_zones(
        self, job: Job, vms: Sequence[Vm], unreachable: Sequence[str]
    ) -> Sequence[str]:
        """Return the zones in which programs of the job may run that this listing does not show.

        If the listing is complete, record that no VM is left in the zones that the job has left.
        """
        if not unreachable and record_empty_zones(job, vms, self.deps):
            self.loaded = None
        return [
            left.zone for left in job.placement.left if left.may_run and left.zone in unreachable
        ]

    def _delete_newer(self, vms: tuple[Vm, ...]) -> _Next:
        """Load the state again, and delete the VMs that are newer than that, too.

        Usually the first state was only out of date. VMs that are newer than a state that was read
        after they were listed exist if the database was restored to an earlier time.
        """
        loaded = self._load()
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
            self.loaded = None  # it has ended since its own document was read
            return _Next.CYCLE
        return self._keep(loaded, machines) if state.holds_machines else _Next.END

    def _keep(self, loaded: Loaded, machines: MachineSet) -> _Next:
        """Let the machines idle that the ended job keeps for a next one, until their time is over
        or none of them is left. Those that are lost are kept no longer.
        """
        if self.deps.clock() >= machines.until:
            kept_machines.release(machines, ReleaseCause.DEADLINE, self.deps)
            return self._after_change()
        zones = loaded.state.job.zones_used
        vms, unreachable, _ = reached(
            lambda: self.fleet_deps.fleet.list_vms(machines.set_id, zones=zones)
        )
        if any(is_later(machines, vm) for vm in vms):
            return self._delete_later(vms)
        if not loaded.state.whole and not all_idle(machines, vms):
            self._load(whole=True)
            return _Next.CYCLE
        lost = lost_vms(loaded.state, machines, vms, is_complete=not unreachable)
        if lost:
            kept_machines.drop_lost(machines, lost, self.deps)
            return self._after_change()
        steps = Steps(kept_steps(loaded.state, machines, vms))
        return _Next.END if steps.is_done else self._progress(steps, loaded)

    def _after_change(self) -> _Next:
        """Go on with the machine set as it is now."""
        self.loaded = None
        self.has_progress = True
        return _Next.CYCLE

    def _delete_later(self, vms: tuple[Vm, ...]) -> _Next:
        """Load the state again, and delete the VMs that only a later holder than the stored one
        can have ordered: they exist if the database was restored to an earlier time.
        """
        loaded = self._load()
        machines = loaded.state.machine_set
        if machines is None or not loaded.state.keeps_machines:
            return _Next.CYCLE
        later = tuple(Delete(vm) for vm in vms if is_later(machines, vm))
        return self._progress(Steps(later), loaded) if later else _Next.CYCLE

    def _explain_wait(
        self,
        state: State,
        steps: Steps,
        vms: Sequence[Vm],
        unreachable: Sequence[str],
        hidden: Sequence[str],
        refusal: str,
    ) -> None:
        """Record that the job waits for zones that cannot be reached, if it does."""
        job = state.job
        if job.zone in unreachable and may_run_where_requested(state):
            problem = refusal or f"Google cannot reach {job.zone}"
            record_out_of_reach(job.job_id, problem, self.deps)
        held = {
            vm.replica_id
            for vm in vms
            if vm.directive and vm.directive.action is DirectiveAction.HOLD
        }
        is_start_awaited = steps.readiness is Readiness.READY or any(
            may_run(job, replica) and replica.replica_id in held for replica in state.replicas
        )
        if hidden and is_start_awaited and not job.state.is_terminal:
            zones = " and ".join(hidden)
            where = f"{zones}, where programs of this job may still run, so no other one starts"
            record_out_of_reach(job.job_id, refusal or f"Google cannot reach {where}", self.deps)

    def _progress(self, steps: Steps, loaded: Loaded) -> _Next:
        """Execute the steps, or wait for VMs."""
        job = loaded.state.job
        is_recorded = steps.waits or self._execute(steps, job)
        if not is_recorded or steps.waits or all(isinstance(step, Direct) for step in steps.steps):
            self.deps.sleep(min(WAIT_MIN_S * 2**self.waits, WAIT_MAX_S))
            self.waits += 1
        return _Next.CYCLE

    def _begin_round(self, loaded: Loaded, steps: Steps) -> bool:
        """Let the verdict begin the held round, rerun the job or end it.

        False: the members are not ready.
        """
        if steps.readiness not in (Readiness.REPORTED, Readiness.READY):
            return False
        job = loaded.state.job
        store = self.deps.store
        ended_round = round_key(job.attempt, job.round.number - 1)
        ends = (*self._late_losses(job), *store.round_ends(job.job_id, ended_round))
        if steps.readiness is Readiness.REPORTED and not ends:
            return False
        without: tuple[ReplicaId, ...] = ()
        if steps.readiness is Readiness.READY:
            without = tuple(
                member.replica_id for member in members(loaded.state) if member.awaits_vm
            )
        event = AllReady(
            job.job_id, job.attempt, self.deps.clock(), job.round.number, ends, without
        )
        recorded = record(event, self.deps, loaded=loaded)
        if recorded.entry.decision.is_provisional:
            return False
        self.has_progress |= recorded.is_new
        self.loaded = recorded.loaded
        self.verdict_key = recorded.entry.key
        self.pending_count += recorded.is_new and recorded.entry.is_pending
        return True

    def _late_losses(self, job: Job) -> tuple[End, ...]:
        """Return the losses of VMs that are evidence about the round that ended, although they were
        judged while it was still held: they were stored after it had begun.
        """
        ended = job.round.number - 1
        if ended < 1:
            return ()
        begin = AllReady(job.job_id, job.attempt, self.deps.clock(), ended)
        return self.deps.store.losses_after(job.job_id, hold_key(job.attempt, ended), begin.key)

    def _request_admission(self, job: Job) -> _Next:
        """Admit the queued job if it fits.

        Nothing is left to do for a job that has to wait: the queue has it, and a later pass admits
        it.
        """
        self.loaded = None  # the admission decides about the first zone
        if not self.deps.limits:
            kept_machines.start(job, self.fleet_deps, self.deps)
            return _Next.CYCLE
        match admission.admit(job, self.fleet_deps, self.deps, self.lease.holder):
            case Admission.ADMITTED:
                return _Next.CYCLE
            case Admission.WAITS:
                return _Next.END
            case Admission.UNDECIDED:
                return _Next.SWEEP

    def _execute(self, steps: Steps, job: Job) -> bool:
        """Execute the steps. Return False if capacity errors wait for the end of another insert."""
        self.has_progress = True
        if any(
            isinstance(step, ReportLoss | ReportMissingMember | ReportGrowth)
            for step in steps.steps
        ):
            self.loaded = None
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
        if not self._is_late():
            step()

    def _is_late(self) -> bool:
        return self.deps.clock() - self.started_at >= timedelta(seconds=DELIVERY_S)

    def _finish(self, loaded: Loaded, pending: PendingEntries, *, is_done: bool) -> None:
        """Confirm the effects of these ledger entries if nothing is left to do, and release the
        lease.

        While a round of a running job is held and waits for reports, the first entry stays pending:
        it names the request that begins the round, so a second such request costs one read.
        All entries stay pending while machines are kept, whoever else confirms earlier ones now: so
        the sweep finds the job when their time is over, even if none of their VMs is left.
        """
        store = self.deps.store
        job = loaded.state.job
        keys = (*pending.included, *pending.later)
        waiting = [member for member in members(loaded.state) if not is_ready(job, member)]
        is_awaited = job.state is JobState.RUNNING and job.round.is_held and bool(waiting)
        confirmed = keys[1:] if is_awaited else keys
        if loaded.state.keeps_machines:
            confirmed = ()
        if is_done and confirmed:
            expire_history(job, store)
            store.mark_done(job.job_id, confirmed, self.deps.clock(), pending.tokens)
        store.release_lease(self.lease)
        late = sorted(set(store.pending_keys(job.job_id)) - set(keys))
        if late:
            # Their own requests may have met the lease.
            self._publish(ProvisionRequest(job.job_id, late[0]))
        if waiting and job.state is not JobState.QUEUED:
            # The request of the last member to report may have met the lease, too.
            is_some_vm_silent = not all(member.awaits_vm for member in waiting)
            start_if_all_ready(
                job, self.deps, next(iter(keys), None), may_go_without=is_some_vm_silent
            )
        if is_done and job.state.is_terminal:
            admission.request_pass(self.deps)

    def _continue_later(self) -> None:
        """Publish the request again.

        A delivery that went on in a pass over the candidates does not count: each pass ends with a
        pause.
        """
        self.deps.store.release_lease(self.lease)
        number = self.request.number
        is_in_one_pass = len(self.placement_rounds) == 1
        if is_in_one_pass:
            number += 1
        if self.has_progress and number <= REQUESTS_MAX:
            self._publish(replace(self.request, number=number))

    def _publish(self, request: ProvisionRequest) -> None:
        self.deps.bus.publish(topics.PROVISION, encode_provision(request), {})


def _has_newer_vms(state: State, vms: tuple[Vm, ...]) -> bool:
    """Whether a later state has ordered some of the VMs.

    All VMs of an ended job are deleted, also those that idled while they were kept.
    """
    is_released = state.job.machines is not None and state.job.state.is_terminal
    return not is_released and bool(delete_newer(state, vms))
