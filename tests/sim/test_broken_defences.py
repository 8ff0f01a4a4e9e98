"""The simulator can fail: with one defence removed, it finds violations in histories that pass with
the defence.

A defence is a part of the product that keeps one kind of fault from doing harm, such as the check
that an event was not recorded before.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from trainmaster.core.actions import DeleteJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import DeleteRequested, ProvisioningStarted, ReplicaEvent
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.reconcile.steps import Delete
from trainmaster.core.rules import admission_queue
from trainmaster.core.rules import judge as judging
from trainmaster.core.rules.admission_queue import Limits, Wait
from trainmaster.core.transitions.change import Change
from trainmaster.flows import provision
from trainmaster.flows.commit import notify as notifying
from trainmaster.flows.commit import record
from trainmaster.flows.provisioning import admission, reconciliation
from trainmaster.flows.provisioning.execute_steps import (
    Inserts,
    execute_step,
    record_capacity_errors,
)
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.flows.provisioning.vm_metadata import vm_metadata
from trainmaster.messaging import agent_messages, topics
from trainmaster.messaging.internal_requests import ProvisionRequest
from trainmaster.ports import AlreadyRecordedError, Lease, LiveJobs, Loaded
from trainmaster_local.memory import store as stores
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.history import run_seed
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.scenarios.fault_profiles import (
    EVERYTHING,
    FUNCTIONS,
    HANGS,
    KEPT,
    LOST_EVENTS,
    MESSAGES,
    PROGRAMS,
    QUEUE,
    RACES,
    SLICES,
    STORM,
    USERS,
    Profile,
)
from trainmaster_local.simulator.scenarios.scenario import HistoryError
from trainmaster_local.simulator.world.agent import SimAgent
from trainmaster_local.simulator.world.event_sender import EventSender
from trainmaster_local.simulator.world.fleet import SimFleet
from trainmaster_local.simulator.world.programs import MixedRoundsError

RemoveDefence = Callable[[pytest.MonkeyPatch], None]
SEEDS = 1_000
FAILURES_EXAMINED = 3


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def accept_duplicate_events(patch: pytest.MonkeyPatch) -> None:
    """Do not check whether the ledger entry exists, nor which incarnation the event is about."""
    commit = MemoryStore.commit
    duplicates = 0

    def commit_again(
        self: MemoryStore,
        loaded: Loaded | None,
        entry: LedgerEntry,
        change: Change,
        *admission_token: Any,
    ) -> None:
        nonlocal duplicates
        try:
            commit(self, loaded, entry, change, *admission_token)
        except AlreadyRecordedError:
            duplicates += 1
            commit(
                self,
                loaded,
                replace(entry, key=f"{entry.key}-{duplicates}"),
                change,
                *admission_token,
            )

    patch.setattr(MemoryStore, "commit", commit_again)
    accept_events_of_any_incarnation(patch)


def commit_without_preconditions(patch: pytest.MonkeyPatch) -> None:
    """Do not notice that the state has changed since it was read."""
    patch.setattr(stores, "_check_version", lambda *_: None)


def accept_events_of_any_incarnation(patch: pytest.MonkeyPatch) -> None:
    """Treat every event as one of the present incarnation."""
    judge_replica = judging._judge_replica_event

    def judge_as_present(state: Any, event: ReplicaEvent, *more: Any) -> Any:
        replica = state.find(event.subject.attempt, event.subject.replica_id)
        if replica:
            present = replace(
                event.subject, incarnation=replica.incarnation, vm_generation=replica.vm_generation
            )
            event = replace(event, subject=present)
        return judge_replica(state, event, *more)

    patch.setattr(judging, "_judge_replica_event", judge_as_present)


def grant_every_lease(patch: pytest.MonkeyPatch) -> None:
    """Let deliveries of one job work side by side.

    The lease saves work, and no other defence may depend on it.
    """
    patch.setattr(
        MemoryStore,
        "take_lease",
        lambda self, name, now, expires_at, holder="": Lease(name, token=None),
    )
    patch.setattr(MemoryStore, "extend_lease", lambda self, lease, expires_at: lease)
    patch.setattr(MemoryStore, "release_lease", lambda self, lease: None)


def delete_vms_by_name(patch: pytest.MonkeyPatch) -> None:
    """Delete the VM that has the name now, whichever it is."""
    grant_every_lease(patch)
    patch.setattr(SimFleet, "_find", lambda self, vm: self.pool.present.get((vm.name, vm.zone)))


def delete_newer_vms(patch: pytest.MonkeyPatch) -> None:
    """Delete every VM that differs from the state that was read, even if the VM belongs to a newer
    state.
    """
    grant_every_lease(patch)

    def steps_with_deletions(
        job: Any, desired: Any, vms: Sequence[Vm], *replicas: Any, **options: Any
    ) -> Any:
        steps = vm_steps(job, desired, tuple(vms), *replicas, **options)
        generations = {target.name: target.replica.vm_generation for target in desired}
        newer = tuple(
            Delete(vm)
            for vm in vms
            if vm.vm_generation > generations.get(vm.name, vm.vm_generation)
        )
        return (*steps, *newer)

    patch.setattr("trainmaster.core.reconcile.plan.vm_steps", steps_with_deletions)


def finish_after_one_round(patch: pytest.MonkeyPatch) -> None:
    """Mark the ledger entries done without another look at the state."""

    def once(request: Any, machines: FleetDeps, deps: record.Deps, *_: object) -> None:
        if not isinstance(request, ProvisionRequest):
            return
        job_id = request.job_id
        keys = deps.store.pending_keys(job_id)
        loaded = deps.store.load_attempt(job_id)
        assert loaded is not None
        state = loaded.state
        if state.job.state == "QUEUED":
            record.record(ProvisioningStarted(job_id, deps.clock()), deps)
        desired = desired_vms(state.job, state.replicas, deps.clock())
        steps = vm_steps(state.job, desired, machines.fleet.list_vms(job_id))
        inserts = Inserts()
        for step in steps:
            metadata = partial(
                vm_metadata, state.job, project="p", address_book=machines.addresses, agent_files={}
            )
            execute_step(step, state.job, machines.fleet, metadata, deps, inserts)
        record_capacity_errors(inserts, state.job, machines.fleet, deps)
        deps.store.mark_done(job_id, keys, deps.clock())

    patch.setattr(provision, "handle", once)


def sweep_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryStore, "jobs_with_pending", lambda _: ())
    patch.setattr(MemoryStore, "live_jobs", lambda _: LiveJobs(()))


def restart_without_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("trainmaster.core.rules.replica_exit.RESTARTS_MAX", 10**6)
    patch.setattr("trainmaster.core.rules.replica_exit.RERUNS_MAX", 10**6)


def start_members_of_a_held_round(patch: pytest.MonkeyPatch) -> None:
    """Start each member as soon as it has stopped: no barrier."""
    patch.setattr("trainmaster.core.reconcile.desired.may_run", lambda *_: True)


def report_no_end(patch: pytest.MonkeyPatch) -> None:
    """Report that a VM is ready, and not how the round before ended on it."""
    decode = agent_messages.decode_vm_ready
    patch.setattr(
        agent_messages, "decode_vm_ready", lambda *message: replace(decode(*message), ended=None)
    )


def ignore_admission_token(patch: pytest.MonkeyPatch) -> None:
    """Do not notice that another job was admitted meanwhile."""
    grant_every_lease(patch)
    commit = MemoryStore.commit
    patch.setattr(
        MemoryStore,
        "commit",
        lambda self, loaded, entry, change, admission_token=None: commit(
            self, loaded, entry, change
        ),
    )


def admit_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """Admit every job that fits beside the admitted ones, whatever is queued before it."""

    def all_that_fit_first(
        jobs: Sequence[Job], waits: Sequence[Wait], limits: Limits
    ) -> tuple[Job, ...]:
        admitted = [job for job in jobs if job.state != "QUEUED"]
        for job in reversed(jobs):
            if job.state == "QUEUED" and not admission_queue.queued_jobs([*admitted, job], limits):
                return (job,)
        return ()

    patch.setattr(admission, "admissible_jobs", all_that_fit_first)


def complete_slice_with_first_host(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("trainmaster.core.rules.replica_exit.Case.hosts_left", 0)


def give_events_of_all_hosts_one_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("trainmaster.core.events.IncarnationRef.host_key", "")


def report_each_event_once(patch: pytest.MonkeyPatch) -> None:
    """Do not repeat a report that Pub/Sub accepted and nothing answered."""
    patch.setattr(EventSender, "_repeat", lambda *_: None)


def forget_accepted_exits(patch: pytest.MonkeyPatch) -> None:
    """Do not report an exit again after a reboot if Pub/Sub had accepted it."""

    def send_exit(self: Any, key: Any, exit_: Any) -> None:
        def forget() -> None:
            if key == self._disk.started:
                self._disk.closed, self._disk.exit = True, None

        self._send(self._events, topics.REPLICA_EXIT, key, exit_, forget)

    patch.setattr(SimAgent, "_send_exit", send_exit)


def read_no_heartbeat(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("trainmaster.flows.provisioning.reconciliation.find_silent", lambda *_: ())


def leave_second_submission_unanswered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryStore, "reject", lambda *_: None)


def publish_no_open_notification(patch: pytest.MonkeyPatch) -> None:
    """Leave the notifications of functions that crashed before their publication."""
    patch.setattr("trainmaster.flows.commit.notify.publish_open", lambda *_: None)
    patch.setattr(MemoryStore, "open_notifications", lambda *_, **__: ())


def confirm_before_publication(patch: pytest.MonkeyPatch) -> None:
    """Confirm a notification, and then publish it."""

    def notify(entry: LedgerEntry, job: Job | None, bus: Any, store: Any, clock: Any) -> None:
        store.confirm_notification(entry.job_id, entry.key, clock())
        notifying.notify(entry, job, bus, store, clock)

    patch.setattr(record, "notify", notify)


def delete_live_jobs(patch: pytest.MonkeyPatch) -> None:
    decision = Decision(Rule.LIFECYCLE, Reason.DELETED_BY_USER, text="", action=DeleteJob())
    patch.setitem(judging.ENDED_JOB_RULES, DeleteRequested, lambda *_: decision)


def let_earlier_holders_act(patch: pytest.MonkeyPatch) -> None:
    """Delete the VMs of an ended job although another job holds them."""
    patch.setattr(State, "holds_machines", property(lambda _: True))


def delete_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    """Delete kept VMs when their time is over, without a stored release."""

    def delete(cycles: Any, machines: MachineSet) -> Any:
        fleet = cycles.fleet_deps.fleet
        for vm in fleet.list_vms(machines.set_id):
            fleet.delete(vm)
        return reconciliation._Next.END

    patch.setattr(reconciliation._Cycles, "_release", delete)


BROKEN: tuple[tuple[RemoveDefence, Profile, int], ...] = (
    (accept_duplicate_events, MESSAGES, 0),
    (commit_without_preconditions, RACES, 7),
    (accept_events_of_any_incarnation, MESSAGES, 0),
    (delete_vms_by_name, EVERYTHING, 92),
    (delete_newer_vms, STORM, 4),
    (finish_after_one_round, replace(RACES, cancel=1.0), 2),
    (sweep_nothing, MESSAGES, 6),
    (restart_without_limit, replace(PROGRAMS, fail=1.0), 4),
    (start_members_of_a_held_round, PROGRAMS, 1),
    (report_no_end, MESSAGES, 115),
    (ignore_admission_token, replace(QUEUE, suspend=0.5), 1108),
    (admit_in_any_order, QUEUE, 0),
    (complete_slice_with_first_host, SLICES, 0),
    (give_events_of_all_hosts_one_key, SLICES, 0),
    (report_each_event_once, LOST_EVENTS, 3),
    (forget_accepted_exits, LOST_EVENTS, 3),
    (read_no_heartbeat, HANGS, 7),
    (publish_no_open_notification, FUNCTIONS, 1),
    (confirm_before_publication, FUNCTIONS, 1),
    (leave_second_submission_unanswered, USERS, 15),
    (delete_live_jobs, USERS, 0),
    (let_earlier_holders_act, KEPT, 13),
    (delete_by_the_clock, KEPT, 0),
)
"""Defence, profile, and a seed whose history fails without the defence.

If the simulator draws other numbers, it may be another seed: the search begins with this one.
"""


def first_failure(profile: Profile, seeds: Iterator[int]) -> HistoryError | None:
    for seed in seeds:
        try:
            run_seed(seed, profile)
        except HistoryError as error:
            return error
    return None


def passes(seed: int, profile: Profile) -> bool:
    try:
        run_seed(seed, profile)
    except HistoryError:
        return False
    return True


@pytest.mark.parametrize(
    ("remove_defence", "profile", "known_seed"),
    BROKEN,
    ids=lambda parameter: getattr(parameter, "__name__", ""),
)
def test_removed_defence_is_found_by_an_invariant(
    remove_defence: RemoveDefence,
    profile: Profile,
    known_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the first failures happens in a history that passes with the defence."""
    seeds = itertools.chain([known_seed], range(SEEDS))
    for _ in range(FAILURES_EXAMINED):
        with monkeypatch.context() as patch:
            remove_defence(patch)
            error = first_failure(profile, seeds)
        assert error is not None, f"no failure with {SEEDS} seeds"
        # An exception of another type would only show that the defence was removed by faulty code.
        assert isinstance(error.cause, ViolationError | MixedRoundsError)
        if passes(error.seed, profile):
            print(f"{remove_defence.__name__}: seed {error.seed}: {str(error.cause)[:150]}")
            return
    pytest.fail(f"the first {FAILURES_EXAMINED} failures happen with the defence too")
