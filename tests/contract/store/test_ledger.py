"""The ledger of a job: its entries, which of them are pending, and their notifications."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest

from tests.contract.store.building import entry_of, load_with_worker_0, must, submit
from tests.support.jobs import START, WORKER_0, a_job, at, change_plan, exited, lost, ready
from trainmaster.core.actions import ContinueProvisioning
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CapacityErrorKind, ReplicaExited, VmLost, VmReady, VmsNotCreated
from trainmaster.core.evolve import evolve
from trainmaster.core.ledger import LedgerEntry, counters, fold
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import replica_key
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.reporting.history import read_history
from trainmaster.core.rules.evidence import Rank
from trainmaster.core.transitions.change import Change
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import PendingEntries, Store


def test_ledger_entry_is_read_back_and_the_ledger_folds_to_the_state(store: Store) -> None:
    submit(store)
    loaded = load_with_worker_0(store)
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1, tail="é\n"))
    store.commit(loaded, entry, change)
    assert store.entry("digits_1", entry.key) == entry
    assert [recorded.key for recorded in store.ledger("digits_1")] == ["submitted", entry.key]
    now = must(store.load_attempt("digits_1"))
    assert fold(store.ledger("digits_1")) == now.state


def test_order_of_the_ledger_survives_an_import(store: Store) -> None:
    """An import of an export writes each document again, in any order, so that its create time
    changes.
    """
    submit(store)
    for event in (exited(WORKER_0, 1), lost(WORKER_0), ready(WORKER_0)):
        loaded = load_with_worker_0(store)
        store.commit(loaded, *entry_of(loaded.state, event))
    before = store.ledger("digits_1")
    if isinstance(store, FirestoreStore):
        for snapshot in reversed(list(store._client.collection("jobs/digits_1/ledger").stream())):
            snapshot.reference.delete()
            snapshot.reference.set(must(snapshot.to_dict()))
    assert store.ledger("digits_1") == before
    assert store.ledger_since("digits_1", before[1].at) == before[1:]
    assert fold(store.ledger("digits_1")) == must(store.load_attempt("digits_1")).state


@pytest.mark.parametrize(
    "event", [lost(WORKER_0), ready(WORKER_0), exited(WORKER_0, 1)], ids=["loss", "report", "exit"]
)
def test_event_that_is_committed_beside_a_move_folds_to_the_state(
    store: Store, event: VmLost | VmReady | ReplicaExited
) -> None:
    """Both commits read the same state: the move writes the job, the event its replica."""
    submit(store)
    loaded = load_with_worker_0(store)
    move(store, number=1, floor=4)
    store.commit(loaded, *entry_of(loaded.state, event))
    check_fold(store, vm_generation=4)


def test_report_from_the_second_zone_that_is_committed_beside_a_move_to_the_third_folds(
    store: Store,
) -> None:
    """No document of a replica was written by the first move."""
    submit(store)
    move(store, number=1, floor=4)
    loaded = load_with_worker_0(store)
    move(store, number=2, floor=6)
    in_second_zone = must(loaded.state.find(1, WORKER_0))
    assert in_second_zone.vm_generation == 4
    report = ready(WORKER_0, incarnation=in_second_zone.incarnation, vm_generation=4)
    entry, change = entry_of(loaded.state, report)
    assert change.replicas
    store.commit(loaded, entry, change)
    check_fold(store, vm_generation=6)


def move(store: Store, number: int, floor: int) -> None:
    """Move the gang to the other of its two zones. `number`: how often it has moved, with now."""
    whole = must(store.load_attempt("digits_1"))
    placement = ContinueProvisioning(zone_index=number % 2, round=number, floor=floor)
    decision = Decision(Rule.CAPACITY, Reason.STOCKOUT, text="", action=placement)
    refused = VmsNotCreated(
        "digits_1",
        attempt=1,
        zone=whole.state.job.zone,
        round=number - 1,
        error_kind=CapacityErrorKind.STOCKOUT,
        code="X",
        message="no",
        at=at(100),
    )
    counted = counters(whole.state, None)
    change = evolve(whole.state, decision, at(100))
    job_state = whole.state.job.state
    entry = LedgerEntry(
        "digits_1", refused.key, at(100), refused, decision, counted, counted, job_state=job_state
    )
    store.commit(whole, entry, change)


def check_fold(store: Store, vm_generation: int) -> None:
    """Check that the ledger gives the stored state, in which all replicas await this generation."""
    state, ledger = must(store.load_attempt("digits_1")).state, store.ledger("digits_1")
    assert {replica.vm_generation for replica in state.replicas} == {vm_generation}
    assert fold(ledger) == state
    history = must(read_history(ledger))
    assert sorted(history.state.replicas, key=attrgetter("key")) == sorted(
        state.replicas, key=attrgetter("key")
    )


def test_ledger_since_a_moment_has_the_entries_of_that_moment_and_later(store: Store) -> None:
    submit(store)
    loaded = load_with_worker_0(store)
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    assert store.ledger_since("digits_1", entry.at) == (entry,)
    assert store.ledger_since("digits_1", entry.at + timedelta(microseconds=1)) == ()
    assert store.ledger_since("digits_1", START - timedelta(days=1)) == store.ledger("digits_1")


def test_losses_after_an_entry_are_those_that_were_committed_later(store: Store) -> None:
    """A loss is the end of a member by the loss of its machine.

    The key `1-2-held` is that of the pause before round 2 of attempt 1.
    """
    submit(store)
    keys = []
    for index, replica_id in enumerate((WORKER_0, ReplicaId(TaskType.WORKER, 1))):
        loaded = must(store.load("digits_1", replica_key(1, replica_id)))
        entry, change = entry_of(loaded.state, exited(replica_id, 1))
        keys.append(entry.key)
        store.commit(
            loaded, replace(entry, round="1-2-held", rank=Rank.MACHINE, ended_at=at(index)), change
        )
    assert [end.key for end in store.losses_after("digits_1", "1-2-held", "submitted")] == keys
    assert [end.key for end in store.losses_after("digits_1", "1-2-held", keys[0])] == keys[1:]
    assert store.losses_after("digits_1", "1-2-held", "unknown") == ()
    assert store.losses_after("digits_1", "1-3-held", "submitted") == ()


def test_effects_are_pending_until_marked_done_and_the_first_time_stays(store: Store) -> None:
    submit(store)
    assert store.pending_keys("digits_1") == ("submitted",)
    assert (store.count_pending("digits_1"), store.count_pending("unknown")) == (1, 0)
    assert store.jobs_with_pending() == ("digits_1",)
    store.mark_done("digits_1", store.pending_keys("digits_1"), at(1))
    loaded = load_with_worker_0(store)
    later, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, later, change)
    store.mark_done("digits_1", ("submitted", later.key, "unknown"), at(2))
    store.mark_done("digits_1", ("submitted", later.key), at(3))
    store.mark_done("digits_1", (), at(4))
    assert store.pending_keys("digits_1") == store.jobs_with_pending() == ()
    assert store.count_pending("digits_1") == 0
    assert must(store.entry("digits_1", "submitted")).done_at == at(1)
    assert must(store.entry("digits_1", later.key)).done_at == at(2)


def test_entries_committed_after_a_read_are_later_than_its_state(store: Store) -> None:
    submit(store)
    before = must(store.load_attempt("digits_1"))
    assert store.pending_entries(before) == PendingEntries(("submitted",), later=())
    exit_entry, change = entry_of(before.state, exited(WORKER_0, 1))
    store.commit(before, exit_entry, change)
    assert store.pending_entries(before) == PendingEntries(("submitted",), (exit_entry.key,))
    store.mark_done("digits_1", ("submitted",), at(1))
    after = must(store.load_attempt("digits_1"))
    assert store.pending_entries(after) == PendingEntries((exit_entry.key,), later=())
    store.mark_done("digits_1", (exit_entry.key,), at(2))
    assert store.pending_entries(after) == PendingEntries(included=(), later=())


def test_state_contains_each_entry_that_is_included_in_it_while_others_commit(store: Store) -> None:
    plan = a_job(JobState.QUEUED).plan
    groups = tuple(
        replace(group, count=24) if group.task_type is TaskType.WORKER else group
        for group in plan.groups
    )
    submit(
        store, a_job(JobState.PREPARING, plan=change_plan(plan, groups=groups, independent=True))
    )
    workers = [ReplicaId(TaskType.WORKER, index) for index in range(24)]
    keys = {exited(worker, 1).key: worker for worker in workers}

    def commit_exit(worker: ReplicaId) -> None:
        loaded = must(store.load("digits_1", replica_key(1, worker)))
        store.commit(loaded, *entry_of(loaded.state, exited(worker, 1)))

    with ThreadPoolExecutor(8) as pool:
        commits = [pool.submit(commit_exit, worker) for worker in workers]
        while True:
            is_last = all(commit.done() for commit in commits)
            loaded = must(store.load_attempt("digits_1"))
            pending = store.pending_entries(loaded)
            for key in {*pending.included} - {"submitted"}:
                assert must(loaded.state.find(1, keys[key])).incarnation == 2, key
            if is_last:
                break
    for commit in commits:
        commit.result()
    assert {*pending.included} == {"submitted", *keys}


def test_notification_is_open_until_it_is_confirmed_and_independent_of_the_other_effects(
    store: Store,
) -> None:
    submit(store, a_job(JobState.QUEUED, job_id="first"))
    submit(store, a_job(JobState.QUEUED, job_id="second"))
    store.mark_done("first", ("submitted",), at(1))
    assert sorted(entry.job_id for entry in store.open_notifications(10)) == ["first", "second"]
    assert len(store.open_notifications(1)) == 1
    store.confirm_notification("second", "submitted", at(2))
    store.confirm_notification("second", "unknown", at(2))
    store.confirm_notification("unknown", "submitted", at(2))
    (entry,) = store.open_notifications(10)
    assert entry == store.entry("first", "submitted")
    confirmed = must(store.entry("second", "submitted"))
    assert (confirmed.notified_at, confirmed.is_pending) == (at(2), True)
    store.mark_done("second", ("submitted",), at(3))
    assert store.jobs_with_pending() == ()


def test_entry_confirmed_by_many_at_once_keeps_one_of_their_times(store: Store) -> None:
    submit(store)
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda nth: store.mark_done("digits_1", ("submitted",), at(nth)), range(1, 5))
        )
    first = must(store.entry("digits_1", "submitted")).done_at
    assert first in {at(nth) for nth in range(1, 5)}
    store.mark_done("digits_1", ("submitted",), at(9))
    assert must(store.entry("digits_1", "submitted")).done_at == first


@pytest.mark.parametrize("store", ["firestore"], indirect=True)
def test_entry_confirmed_between_reading_and_writing_keeps_the_first_time(
    store: FirestoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store)
    get = store._get

    def get_then_confirm(*paths: str, **options: Any) -> Any:
        found = get(*paths, **options)
        monkeypatch.setattr(store, "_get", get)
        store.mark_done("digits_1", ("submitted",), at(1))
        return found

    monkeypatch.setattr(store, "_get", get_then_confirm)
    store.mark_done("digits_1", ("submitted",), at(2))
    assert must(store.entry("digits_1", "submitted")).done_at == at(1)


def test_each_job_with_pending_entries_is_listed_once(store: Store) -> None:
    for job_id in ("b_job", "a_job"):
        submit(store, a_job(JobState.QUEUED, job_id=job_id))
        loaded = must(store.load(job_id))
        store.commit(loaded, replace(must(store.entry(job_id, "submitted")), key="again"), Change())
    assert sorted(store.jobs_with_pending()) == ["a_job", "b_job"]


def test_entries_are_confirmed_by_the_tokens_of_their_first_read(store: Store) -> None:
    submit(store, a_job(JobState.QUEUED, job_id="digits_1"))
    loaded = must(store.load_attempt("digits_1"))
    pending = store.pending_entries(loaded)
    assert set(pending.tokens) == {"submitted"}
    store.mark_done("digits_1", ("submitted",), at(1), pending.tokens)
    store.mark_done("digits_1", ("submitted",), at(2), pending.tokens)
    assert must(store.entry("digits_1", "submitted")).done_at == at(1), "the first time stays"
    store.mark_done("digits_1", ("submitted", "unknown"), at(3), pending.tokens)
    assert store.pending_keys("digits_1") == ()


def test_entry_is_pending_until_it_is_marked_done(store: Store) -> None:
    submit(store)
    assert store.is_pending("digits_1", "submitted")
    assert not store.is_pending("digits_1", "unknown")
    assert not store.is_pending("unknown", "submitted")
    store.mark_done("digits_1", ("submitted",), at(1))
    assert not store.is_pending("digits_1", "submitted")
