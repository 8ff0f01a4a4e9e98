"""The simulator can fail: with one defence taken away, it finds out within a few seeds that pass with it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from shared.core.decisions import DeleteJob, Reason, Rule
from shared.core.events import AllReady, ProvisioningStarted, ReplicaEvent
from shared.core.evolve import Change
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job
from shared.core.reconcile.plan import Delete, Vm, desired, plan_steps
from shared.core.rules import admission_queue
from shared.core.rules import judge as judging
from shared.core.rules.admission_queue import Limits, Wait
from shared.flows import admission, provision, record, vm_ready
from shared.memory import store as stores
from shared.memory.store import MemoryStore
from shared.ports import AlreadyRecordedError, Loaded
from simulator.scenarios import generator
from simulator.scenarios.fault_profiles import (
    CALM,
    EVERYTHING,
    HANDS,
    LINE,
    MACHINES,
    MESSAGES,
    PROGRAMS,
    RACES,
    SLICES,
    Profile,
)
from simulator.scenarios.scenario import HistoryError
from simulator.world.fleet import SimFleet

Break = Callable[[pytest.MonkeyPatch], None]
SEEDS = 250


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def duplicates_are_judged_again(patch: pytest.MonkeyPatch) -> None:
    """The ledger entry's existence is not asked for."""
    commit = MemoryStore.commit
    told = 0

    def again(self: MemoryStore, loaded: Loaded | None, entry: LedgerEntry, change: Change) -> None:
        nonlocal told
        try:
            commit(self, loaded, entry, change)
        except AlreadyRecordedError:
            told += 1
            commit(self, loaded, replace(entry, key=f"{entry.key}-{told}"), change)

    patch.setattr(MemoryStore, "commit", again)
    fences_on_lives_are_gone(patch)


def lost_races_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """Commits without preconditions."""
    patch.setattr(stores, "_check", lambda *_: None)


def fences_on_lives_are_gone(patch: pytest.MonkeyPatch) -> None:
    """Whatever incarnation an event names, it is taken for the present one."""
    judge_replica = judging._judge_replica

    def unfenced(state: Any, event: ReplicaEvent, *more: Any) -> Any:
        replica = state.find(event.subject.attempt, event.subject.replica_id)
        if replica:
            present = replace(event.subject, incarnation=replica.incarnation, vm_generation=replica.vm_generation)
            event = replace(event, subject=present)
        return judge_replica(state, event, *more)

    patch.setattr(judging, "_judge_replica", unfenced)


def vms_are_deleted_by_name(patch: pytest.MonkeyPatch) -> None:
    """Whatever VM has the name by now."""
    patch.setattr(SimFleet, "_find", lambda self, vm: self.there.get((vm.name, vm.zone)))


def zones_and_machines_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Any VM that is not exactly what this state knows is deleted, newer ones, too."""

    def hasty(job: Any, wants: Any, vms: Sequence[Vm]) -> Any:
        steps = plan_steps(job, wants, tuple(vms))
        machines = {want.name: want.replica.vm_generation for want in wants}
        newer = tuple(Delete(vm) for vm in vms if vm.vm_generation > machines.get(vm.name, vm.vm_generation))
        return (*steps, *newer)

    patch.setattr(provision, "plan_steps", hasty)


def done_is_said_without_looking_again(patch: pytest.MonkeyPatch) -> None:
    def once(job_id: Any, machines: provision.Machines, deps: record.Deps) -> None:
        if not isinstance(job_id, str):
            return
        keys = deps.store.pending(job_id)
        loaded = deps.store.load_attempt(job_id)
        assert loaded is not None
        state = loaded.state
        if state.job.state == "QUEUED":
            record.record(job_id, ProvisioningStarted(job_id, deps.clock()), deps)
        steps = plan_steps(state.job, desired(state.job, state.replicas), machines.fleet.list_vms(job_id))
        for step in steps:
            provision._carry_out(step, state, machines, deps, Counter())
        deps.store.mark_done(job_id, keys, deps.clock())

    patch.setattr(provision, "handle", once)


def readiness_is_counted_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    def early(event: Any, deps: record.Deps) -> None:
        subject = event.subject
        loaded = deps.store.load(subject.job_id)
        count = deps.store.count_ready(subject.job_id, subject.attempt)
        record.record(subject.job_id, event, deps)
        if loaded and count >= len(loaded.state.job.plan.replica_ids):
            record.record(subject.job_id, AllReady(subject.job_id, subject.attempt, deps.clock()), deps)

    patch.setattr(vm_ready, "handle", early)


def the_sweep_looks_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryStore, "jobs_with_pending", lambda _: ())
    patch.setattr(MemoryStore, "live_jobs", lambda _: ())


def restarts_have_no_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("shared.core.rules.replica_exit.RESTARTS_MAX", 10**6)
    patch.setattr("shared.core.rules.replica_exit.RERUNS_MAX", 10**6)


def nobody_is_called_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(provision, "replicas_to_reactivate", lambda _: ())


def admissions_do_not_look_at_each_other(patch: pytest.MonkeyPatch) -> None:
    commit = MemoryStore.commit
    patch.setattr(
        MemoryStore,
        "commit",
        lambda self, loaded, entry, change, admission_token=None: commit(self, loaded, entry, change),
    )


def whoever_comes_first_is_admitted(patch: pytest.MonkeyPatch) -> None:
    """If there is room beside those that run: nobody counts those who wait."""

    def greedy(job_id: str, jobs: Sequence[Job], limits: Limits) -> Wait | None:
        return admission_queue.wait_of(
            job_id, [job for job in jobs if job.state != "QUEUED" or job.job_id == job_id], limits
        )

    patch.setattr(admission, "wait_of", greedy)


def a_slice_is_done_with_its_first_host(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("shared.core.rules.replica_exit.Case.hosts_left", 0)


def other_hosts_ends_are_the_same_event(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("shared.core.events.IncarnationRef.host_key", "")


def hosts_of_a_slice_begin_while_others_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("simulator.world.agent.PARTING_S", 0.0)


def second_submissions_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryStore, "reject", lambda *_: None)


def living_jobs_are_deleted(patch: pytest.MonkeyPatch) -> None:
    decision = DeleteJob(Rule.LIFECYCLE, Reason.DELETED_BY_USER, "")
    patch.setattr(judging, "_judge_deletion", lambda _: decision)


BROKEN: tuple[tuple[Break, Profile], ...] = (
    (duplicates_are_judged_again, MESSAGES),
    (lost_races_are_not_noticed, RACES),
    (fences_on_lives_are_gone, MESSAGES),
    (vms_are_deleted_by_name, EVERYTHING),
    (zones_and_machines_are_not_compared, RACES),
    (done_is_said_without_looking_again, replace(RACES, cancel=1.0)),
    (readiness_is_counted_before_it_is_written, CALM),
    (the_sweep_looks_for_nothing, MESSAGES),
    (restarts_have_no_limit, replace(PROGRAMS, fail=1.0)),
    (nobody_is_called_back, MACHINES),
    (admissions_do_not_look_at_each_other, replace(LINE, suspend=0.5)),
    (whoever_comes_first_is_admitted, LINE),
    (a_slice_is_done_with_its_first_host, SLICES),
    (other_hosts_ends_are_the_same_event, SLICES),
    (hosts_of_a_slice_begin_while_others_end, SLICES),
    (second_submissions_are_not_answered, HANDS),
    (living_jobs_are_deleted, HANDS),
)


def failures(profile: Profile) -> Iterator[HistoryError]:
    for seed in range(SEEDS):
        try:
            generator.case(seed, profile)
        except HistoryError as error:
            yield error


def passes(seed: int, profile: Profile) -> bool:
    try:
        generator.case(seed, profile)
    except HistoryError:
        return False
    return True


@pytest.mark.parametrize(("broken", "profile"), BROKEN, ids=lambda each: getattr(each, "__name__", ""))
def test_a_defence_that_is_taken_away_is_missed(
    broken: Break, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        broken(patch)
        found = list(islice(failures(profile), 3))
    missed = [failure for failure in found if passes(failure.seed, profile)]
    assert missed, found
    print(f"{broken.__name__}: seed {missed[0].seed}: {str(missed[0].cause)[:150]}")
