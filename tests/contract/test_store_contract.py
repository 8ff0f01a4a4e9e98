"""One suite for the Store, on the adapter in memory and on Firestore's emulator."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

import pytest

from shared.core.actions import RefundCharge
from shared.core.decisions import Decision, Reason, Rule
from shared.core.events import JobSubmitted, ProvisioningStarted, ReplicaExited
from shared.core.evolve import evolve
from shared.core.ledger import LedgerEntry, counters, fold
from shared.core.model.job import Job, JobState, Label, State
from shared.core.model.learning_curve import points_max
from shared.core.model.replica import EndKind, PastIncarnation, Replica, ReplicaState, replica_key
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.search_space import Parameter, ParameterKind
from shared.core.model.tuning import EarlierTrial, Measurement, Trial, TrialOf, TrialState, Tuning
from shared.core.model.vm_names import vm_name
from shared.core.reconcile.zone_order import Stockout
from shared.core.rules.judge import judge
from shared.core.transitions.change import Change
from shared.errors import ConflictError
from shared.gcp import clients
from shared.gcp.firestore.documents import job_document
from shared.gcp.firestore.store import FirestoreStore
from shared.memory.store import MemoryStore
from shared.ports import (
    LOST_PEERS_PAGE,
    AdmissionToken,
    AlreadyRecordedError,
    JobPosition,
    Orphan,
    PendingEntries,
    Rejection,
    Store,
)
from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, a_job, at, exited, ready

T = TypeVar("T")


@pytest.fixture(params=["memory", "firestore"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", request.getfixturevalue("firestore_emulator"))
    store = FirestoreStore(clients.firestore_client(f"test-{uuid.uuid4().hex[:12]}"))
    yield store
    store.close()


def submit(store: Store, job: Job | None = None) -> Job:
    job = job or a_job(JobState.QUEUED)
    event = JobSubmitted(job, START)
    decision = judge(None, event, START)
    change = evolve(None, decision, START)
    after = counters(None, None)
    store.commit(None, LedgerEntry(job.job_id, event.key, START, event, decision, after, after, change.effects), change)
    return job


def entry_of(state: State, event: ReplicaExited) -> tuple[LedgerEntry, Change]:
    decision = judge(state, event, at(100))
    change = evolve(state, decision, at(100))
    before = counters(state, "1-worker-0")
    return LedgerEntry("digits_1", event.key, at(100), event, decision, before, before, change.effects), change


def must(found: T | None) -> T:
    assert found is not None
    return found


def test_empty_store_returns_nothing(store: Store) -> None:
    assert store.load("digits_1") is None
    assert store.load_attempt("digits_1") is None
    assert store.entry("digits_1", "submitted") is None
    assert store.ledger("digits_1") == ()
    assert store.count_ready("digits_1", 1) == 0


def test_job_is_read_back_to_the_microsecond(store: Store) -> None:
    job = submit(
        store, replace(a_job(JobState.QUEUED), created_at=START.replace(microsecond=123457), labels=(Label("a", "b"),))
    )
    loaded = must(store.load_attempt("digits_1"))
    assert loaded.state.job == job
    assert loaded.state.replicas == tuple(
        Replica(1, replica_id, ordered_at=START) for replica_id in (CHIEF, WORKER_0, WORKER_1)
    )
    assert loaded.state.whole
    assert must(store.load("digits_1")).state == State(job)
    assert must(store.load("digits_1", "1-worker-1")).state.replicas == (Replica(1, WORKER_1, ordered_at=START),)
    assert must(store.load("digits_1", "9-worker-9")).state.replicas == ()


def test_ledger_entry_is_read_back_and_the_ledger_folds_to_the_state(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1, tail="é\n"))
    store.commit(loaded, entry, change)
    assert store.entry("digits_1", entry.key) == entry
    assert [recorded.key for recorded in store.ledger("digits_1")] == ["submitted", entry.key]
    now = must(store.load_attempt("digits_1"))
    assert fold(store.ledger("digits_1")) == now.state


def test_ledger_since_a_moment_has_the_entries_of_that_moment_and_later(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    assert store.ledger_since("digits_1", entry.at) == (entry,)
    assert store.ledger_since("digits_1", entry.at + timedelta(microseconds=1)) == ()
    assert store.ledger_since("digits_1", START - timedelta(days=1)) == store.ledger("digits_1")


def test_event_recorded_twice_raises_and_changes_nothing(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    again = must(store.load("digits_1", "1-worker-0"))
    with pytest.raises(AlreadyRecordedError):
        store.commit(again, entry, change)
    with pytest.raises(AlreadyRecordedError):
        submit(store, a_job(JobState.QUEUED, submission="another"))
    assert must(store.load("digits_1", "1-worker-0")).state == again.state


def test_commit_on_a_stale_state_conflicts_and_writes_nothing(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    first, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, first, change)
    late = replace(first, key="1-worker-0-1-other")
    with pytest.raises(ConflictError):
        store.commit(loaded, late, change)
    assert store.entry("digits_1", late.key) is None


def test_ignored_event_is_recorded_despite_other_writers(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    first, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, first, change)
    entry, nothing = entry_of(loaded.state, exited(WORKER_0, 1, incarnation=9))
    store.commit(loaded, entry, nothing)
    assert store.entry("digits_1", entry.key) == entry


def submit_with(store: Store, *replicas: Replica) -> Replica:
    """Submit a job with these replicas beside the chief, and return the chief."""
    submit(store)
    loaded = must(store.load_attempt("digits_1"))
    stored = {replica.key for replica in loaded.state.replicas}
    entry, _ = entry_of(loaded.state, exited(WORKER_0, 1, incarnation=9))
    change = Change(replicas=tuple(replace(replica, version=2 if replica.key in stored else 1) for replica in replicas))
    store.commit(loaded, entry, change)
    return must(loaded.state.find(1, CHIEF))


def worker(index: int, *past: PastIncarnation, attempt: int = 1) -> Replica:
    return Replica(attempt, ReplicaId(TaskType.WORKER, index), incarnation=9, past=past)


def peers_away(store: Store, chief: Replica, since: int | None) -> list[list[int]]:
    """Return the indices of the workers in each page that has any."""
    pages = store.lost_peers("digits_1", chief, None if since is None else at(since))
    return [[peer.replica_id.index for peer in page] for page in pages if page]


def test_lost_peers_are_those_that_lost_a_vm_then_those_that_failed(store: Store) -> None:
    chief = submit_with(
        store,
        worker(0, PastIncarnation(1, EndKind.EXIT, at(1), is_charged=True)),
        worker(1, PastIncarnation(1, EndKind.VM_LOST, at(2))),
        worker(2, PastIncarnation(1, EndKind.EXIT, at(1), is_charged=False)),
        worker(3, PastIncarnation(1, EndKind.REBOOT, at(2))),
        worker(4, PastIncarnation(1, EndKind.STALL, at(2))),
        worker(5),
        worker(6, PastIncarnation(1, EndKind.VM_LOST, at(2)), attempt=2),
    )
    assert peers_away(store, chief, None) == [[4, 3, 1], [0]]


def test_lost_peers_were_away_after_the_given_time(store: Store) -> None:
    chief = submit_with(
        store,
        worker(0, PastIncarnation(1, EndKind.VM_LOST, at(1), back_at=at(19))),
        worker(1, PastIncarnation(1, EndKind.VM_LOST, at(1), back_at=at(20))),
        worker(
            2, PastIncarnation(1, EndKind.VM_LOST, at(1), back_at=at(10)), PastIncarnation(2, EndKind.REBOOT, at(15))
        ),
        worker(3, PastIncarnation(1, EndKind.EXIT, at(1), back_at=at(21), is_charged=True)),
        worker(4, PastIncarnation(1, EndKind.EXIT, at(1), back_at=at(5), is_charged=True)),
    )
    assert peers_away(store, chief, 20) == [[2, 1], [3]]


def test_lost_peers_do_not_contain_the_replica_itself(store: Store) -> None:
    lost = PastIncarnation(1, EndKind.VM_LOST, at(2))
    submit_with(store, worker(0, lost), worker(1, lost))
    assert peers_away(store, worker(0), None) == [[1]]


def test_first_page_of_lost_peers_is_small_and_the_second_has_the_others(store: Store) -> None:
    lost, failed = PastIncarnation(1, EndKind.VM_LOST, at(2)), PastIncarnation(1, EndKind.EXIT, at(2), is_charged=True)
    workers = [worker(index, lost if index < 25 else failed) for index in range(40)]
    pages = peers_away(store, submit_with(store, *workers), 1)
    assert [len(page) for page in pages] == [
        LOST_PEERS_PAGE,
        25 - LOST_PEERS_PAGE,
        LOST_PEERS_PAGE,
        15 - LOST_PEERS_PAGE,
    ]
    assert sorted(index for page in pages for index in page) == list(range(40))


def test_peer_whose_only_exit_was_refunded_is_not_a_lost_peer(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    charged = must(store.load("digits_1", "1-worker-0"))
    chief = must(must(store.load("digits_1", "1-chief-0")).state.find(1, CHIEF))
    assert peers_away(store, chief, None) == [[0]]
    refund = evolve(
        charged.state,
        Decision(Rule.COLLATERAL, Reason.CHARGE_EXPLAINED, "", RefundCharge("1-worker-0", 1, "1-worker-1")),
        at(101),
    )
    store.commit(charged, replace(entry, key="refund"), refund)
    assert peers_away(store, chief, None) == []


def test_replicas_of_an_earlier_attempt_are_not_read(store: Store) -> None:
    submit(store)
    unused = must(store.load_attempt("digits_1")).state.replicas
    loaded = must(store.load("digits_1", "1-worker-0"))
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    ended = must(store.load_attempt("digits_1"))
    job = replace(ended.state.job, attempt=2, version=ended.state.job.version + 1)
    second = tuple(replace(replica, attempt=2) for replica in unused)
    store.commit(ended, replace(entry, key="second-attempt"), Change(job=job, replicas=second))
    assert must(store.load_attempt("digits_1")).state.replicas == second
    assert must(store.load("digits_1", "2-chief-0")).state.replicas == (second[0],)
    assert not [*chain(*store.lost_peers("digits_1", second[0], None))], "worker 0 was lost in the first attempt only"


def test_effects_are_pending_until_marked_done_and_the_first_time_stays(store: Store) -> None:
    submit(store)
    assert store.pending_keys("digits_1") == ("submitted",)
    assert store.jobs_with_pending() == ("digits_1",)
    store.mark_done("digits_1", store.pending_keys("digits_1"), at(1))
    loaded = must(store.load("digits_1", "1-worker-0"))
    later, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, later, change)
    store.mark_done("digits_1", ("submitted", later.key, "unknown"), at(2))
    store.mark_done("digits_1", ("submitted", later.key), at(3))
    store.mark_done("digits_1", (), at(4))
    assert store.pending_keys("digits_1") == store.jobs_with_pending() == ()
    assert must(store.entry("digits_1", "submitted")).done_at == at(1)
    assert must(store.entry("digits_1", later.key)).done_at == at(2)


def test_entries_committed_after_a_read_are_later_than_its_state(store: Store) -> None:
    submit(store)
    before = must(store.load_attempt("digits_1"))
    assert store.pending_entries(before) == PendingEntries(("submitted",), ())
    exit_entry, change = entry_of(before.state, exited(WORKER_0, 1))
    store.commit(before, exit_entry, change)
    assert store.pending_entries(before) == PendingEntries(("submitted",), (exit_entry.key,))
    store.mark_done("digits_1", ("submitted",), at(1))
    after = must(store.load_attempt("digits_1"))
    assert store.pending_entries(after) == PendingEntries((exit_entry.key,), ())
    store.mark_done("digits_1", (exit_entry.key,), at(2))
    assert store.pending_entries(after) == PendingEntries((), ())


def test_state_contains_each_entry_that_is_included_in_it_while_others_commit(store: Store) -> None:
    plan = a_job(JobState.QUEUED).plan
    groups = tuple(replace(group, count=24) if group.task_type is TaskType.WORKER else group for group in plan.groups)
    submit(store, a_job(JobState.QUEUED, plan=replace(plan, groups=groups)))
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


def test_notification_is_open_until_it_is_confirmed_and_independent_of_the_other_effects(store: Store) -> None:
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
        list(pool.map(lambda nth: store.mark_done("digits_1", ("submitted",), at(nth)), range(1, 5)))
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


def test_replicas_of_an_attempt_have_the_order_of_the_plan(store: Store) -> None:
    plan = a_job(JobState.QUEUED).plan
    groups = tuple(replace(group, count=11) if group.task_type is TaskType.WORKER else group for group in plan.groups)
    submit(store, a_job(JobState.QUEUED, plan=replace(plan, groups=groups)))
    state = must(store.load_attempt("digits_1")).state
    assert [replica.replica_id for replica in state.replicas] == list(state.job.plan.replica_ids)
    assert len(state.replicas) == 12


def test_ready_replicas_are_counted_per_attempt(store: Store) -> None:
    submit(store)
    for replica_id in (CHIEF, WORKER_1):
        loaded = must(store.load("digits_1", f"1-{replica_id}"))
        event = ready(replica_id)
        decision = judge(loaded.state, event, at(5))
        none = counters(None, None)
        entry = LedgerEntry("digits_1", event.key, at(5), event, decision, none, none)
        store.commit(loaded, entry, evolve(loaded.state, decision, at(5)))
    assert store.count_ready("digits_1", 1) == 2
    assert store.count_ready("digits_1", 2) == 0


@pytest.mark.parametrize("store", ["firestore"], indirect=True)
def test_attempt_is_read_as_of_one_moment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job in its old zone, with replicas that were requested in the next zone, would be wrong about every VM."""
    submit(store)
    before = must(store.load_attempt("digits_1"))
    find = store._find  # type: ignore[attr-defined]

    def write_between(*args: object, **options: object) -> object:
        entry, change = entry_of(before.state, exited(WORKER_0, 1))
        store.commit(must(store.load("digits_1", "1-worker-0")), entry, change)
        return find(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_find", write_between)
        assert must(store.load_attempt("digits_1")).state == before.state
    assert must(store.load_attempt("digits_1")).state != before.state


def test_live_jobs_have_not_ended_and_recent_jobs_are_newest_first(store: Store) -> None:
    for nth, state in enumerate([JobState.QUEUED, JobState.RUNNING, JobState.FAILED]):
        submit(store, a_job(state, job_id=f"job_{nth}", created_at=at(nth)))
    assert sorted(job.job_id for job in store.live_jobs()) == ["job_0", "job_1"]
    assert [job.job_id for job in store.recent_jobs(2)] == ["job_2", "job_1"]


def test_job_list_pages_are_ordered_by_time_then_id(store: Store) -> None:
    made = {"job_a": 0, "job_b": 5, "job_c": 5, "job_d": 5, "job_e": 9}
    for job_id, seconds in made.items():
        submit(store, a_job(JobState.QUEUED, job_id=job_id, created_at=at(seconds).replace(microsecond=123457)))
    listed: list[str] = []
    page = store.recent_jobs(2)
    while page:
        listed += [job.job_id for job in page]
        page = store.recent_jobs(2, JobPosition(page[-1].created_at, page[-1].job_id))
    assert listed == ["job_e", "job_d", "job_c", "job_b", "job_a"]
    assert store.recent_jobs(5, JobPosition(at(5), "job_zz"))[0].job_id == "job_a", "a place where no job is"


def test_jobs_are_counted_from_a_moment_on(store: Store) -> None:
    assert store.count_created_since(START, through_api=False) == 0
    for nth in range(3):
        submit(store, a_job(JobState.QUEUED, job_id=f"job_{nth}", created_at=at(nth)))
    assert [store.count_created_since(at(seconds), through_api=False) for seconds in (0, 1, 2, 3)] == [3, 2, 1, 0]


def test_created_jobs_are_counted_by_their_way_of_submission(store: Store) -> None:
    submit(store, a_job(JobState.QUEUED, job_id="uploaded"))
    for nth in range(2):
        submit(store, a_job(JobState.QUEUED, job_id=f"api_{nth}", through_api=True))
    assert store.count_created_since(START, through_api=True) == 2
    assert store.count_created_since(START, through_api=False) == 1


def test_jobs_are_counted_by_state_and_label_without_trials_and_deleted_ones(store: Store) -> None:
    assert store.count_by_state() == dict.fromkeys(JobState, 0)
    vision, owner = Label("team", "vision"), Label("owner", "anna")
    submit(store, a_job(JobState.QUEUED, job_id="queued", labels=(owner, vision)))
    submit(store, a_job(JobState.FAILED, job_id="failed", labels=(vision,)))
    submit(store, a_job(JobState.FAILED, job_id="failed_speech", labels=(Label("team", "speech"),)))
    submit(store, a_job(JobState.FAILED, job_id="failed_deleted", labels=(vision,), deleted_at=at(9)))
    submit(store, a_job(JobState.FAILED, job_id="trial", labels=(vision,), trial_of=TrialOf("queued", 1, "accuracy")))
    none = dict.fromkeys(JobState, 0)
    assert store.count_by_state() == none | {JobState.QUEUED: 1, JobState.FAILED: 2}
    assert store.count_by_state(vision) == none | {JobState.QUEUED: 1, JobState.FAILED: 1}
    assert store.count_by_state(owner) == none | {JobState.QUEUED: 1}
    assert store.count_by_state(Label("team", "anna")) == none, "key and value belong together"


def test_trials_are_live_jobs_but_not_counted_as_created(store: Store) -> None:
    submit(store)
    submit(store, a_job(JobState.QUEUED, job_id="digits_1-trial-1", trial_of=TrialOf("digits_1", 1, "accuracy")))
    assert store.count_created_since(START, through_api=False) == 1
    assert {job.job_id for job in store.live_jobs()} == {"digits_1", "digits_1-trial-1"}


def a_large_study() -> Job:
    """The largest that the job format accepts, of eight numbers with all their digits."""
    values = tuple(f"-{nth}.12345678901234567e-300" for nth in range(8))
    trials = tuple(
        Trial(number, values, TrialState.SUCCEEDED, at(1), at(2), Measurement(0.5, 10)) for number in range(1, 1001)
    )
    parameters = tuple(Parameter(f"p{nth}", ParameterKind.DOUBLE, 0, 1) for nth in range(8))
    tuning = Tuning(parameters, max_trials=1000, trials=trials, last_error="x" * 4096)
    return a_job(JobState.RUNNING, tuning=tuning, spec_json="x" * 65536)


def test_tuning_job_of_a_thousand_trials_is_read_back(store: Store) -> None:
    job = submit(store, a_large_study())
    assert must(store.load(job.job_id)).state.job == job


def size_of(value: object) -> int:
    """Source: Firestore's documented storage size calculations."""
    match value:
        case str():
            return len(value.encode()) + 1
        case bool() | None:
            return 1
        case list():
            return sum(map(size_of, value))
        case dict():
            return sum(size_of(key) + size_of(each) for key, each in value.items())
        case _:
            return 8


def test_largest_tuning_job_and_its_previous_study_fit_a_document() -> None:
    job = a_large_study()
    tuning = job.tuning
    assert tuning is not None
    curve = tuple(Measurement(0.5, step) for step in range(points_max(1000)))
    whole = replace(
        tuning,
        trials=tuple(replace(trial, reported=curve) for trial in tuning.trials),
        earlier=tuple(EarlierTrial(trial.values, 0.5) for trial in tuning.trials),
    )
    size = size_of(job_document(replace(job, tuning=whole)))
    assert 500_000 < size < 1 << 20


def test_rejection_is_stored_once(store: Store) -> None:
    rejection = Rejection("k", "message:1", None, ("Field: x Error: y",), START)
    store.reject(rejection)
    store.reject(replace(rejection, at=at(1)))
    assert store.rejections() == (rejection,)


def test_job_of_vm_finds_live_and_ended_jobs(store: Store) -> None:
    for job_id, state in (("digits_1", JobState.RUNNING), ("Digits_1", JobState.FAILED), ("d" * 128, JobState.QUEUED)):
        submit(store, a_job(state, job_id=job_id))
        for replica_id in (CHIEF, WORKER_1):
            assert store.job_of_vm(vm_name(job_id, replica_id)) == job_id


def test_job_of_vm_is_none_for_a_foreign_vm(store: Store) -> None:
    submit(store)
    hash_ = vm_name("digits_1", CHIEF).split("-")[-3]
    assert store.job_of_vm(f"tm-digits-1-{hash_}-chief-0") == "digits_1"
    for name in (
        f"tm-another-{hash_}-chief-0",  # the same hash, not the same job
        vm_name("digits_1", replace(WORKER_0, index=99)),  # a replica that it does not have
        vm_name("digits_2", CHIEF),
        "gke-pool-1",
        "",
    ):
        assert store.job_of_vm(name) is None, name


def test_orphan_is_reported_once_until_it_is_forgotten(store: Store) -> None:
    orphan = Orphan("4711", "tm-x-abcdef0123456789-chief-0", "us-central1-a", "x", START)
    other = replace(orphan, instance_id="4712")
    assert store.orphans() == ()
    store.report_orphan(orphan)
    store.report_orphan(replace(orphan, first_seen_at=at(60)))
    store.report_orphan(other)
    assert set(store.orphans()) == {orphan, other}
    for _ in range(2):
        store.forget_orphan("4711")
    assert store.orphans() == (other,)


def test_exactly_one_of_many_writers_wins_each_round(store: Store) -> None:
    submit(store)
    rounds, writers = 5, 4
    won: list[int] = []

    def write(writer: int) -> None:
        for nth in range(rounds):
            while True:
                loaded = must(store.load("digits_1", "1-worker-0"))
                incarnation = loaded.state.replicas[0].incarnation
                if incarnation > nth + 1:
                    break
                event = exited(WORKER_0, 1, incarnation=incarnation)
                try:
                    store.commit(loaded, *entry_of(loaded.state, event))
                except (ConflictError, AlreadyRecordedError):
                    continue
                won.append(writer)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == rounds
    assert must(store.load("digits_1", "1-worker-0")).state.replicas[0].restarts_used == rounds
    assert fold(store.ledger("digits_1")) == must(store.load_attempt("digits_1")).state


def test_second_commit_on_an_admission_token_conflicts(store: Store) -> None:
    for name in ("first", "later"):  # the very first turn of a project, and another
        submit(store, replace(a_job(JobState.QUEUED), job_id=name))
        admission_token = store.admission_token()
        assert name in {job.job_id for job in admission_token.jobs}
        started, change = started_entry(name, must(store.load(name)).state)
        store.commit(must(store.load(name)), started, change, admission_token)
        with pytest.raises(ConflictError):
            store.commit(must(store.load(name)), replace(started, key="again"), Change(), admission_token)
        assert store.entry(name, "again") is None


def started_entry(job_id: str, state: State) -> tuple[LedgerEntry, Change]:
    event = ProvisioningStarted(job_id, at(1))
    decision = judge(state, event, at(1))
    before = counters(None, None)
    return LedgerEntry(job_id, event.key, at(1), event, decision, before, before, ()), evolve(state, decision, at(1))


def test_latest_stockout_of_each_zone_and_machine_kind_is_kept(store: Store) -> None:
    zone, other = "us-central1-a", "us-central1-b"
    gpu = "Spot n1-standard-8 with 1 x nvidia-tesla-t4"
    assert store.stockouts(START) == ()
    for at_s in (10, 20):
        store.note_stockout(Stockout(zone, gpu, at(at_s)))
    store.note_stockout(Stockout(zone, "n1-standard-8", at(30)))
    store.note_stockout(Stockout(other, gpu, at(5)))
    assert set(store.stockouts(START)) == {
        Stockout(zone, gpu, at(20)),
        Stockout(zone, "n1-standard-8", at(30)),
        Stockout(other, gpu, at(5)),
    }
    assert set(store.stockouts(at(20))) == {Stockout(zone, gpu, at(20)), Stockout(zone, "n1-standard-8", at(30))}
    assert store.stockouts(at(31)) == ()


def test_only_the_latest_admission_has_a_next_token(store: Store) -> None:
    def admit(name: str, token: AdmissionToken) -> None:
        loaded = must(store.load(name))
        started, change = started_entry(name, loaded.state)
        store.commit(loaded, started, change, token)

    for name in ("first", "second", "third"):
        submit(store, replace(a_job(JobState.QUEUED), job_id=name))
    token = store.admission_token()
    admit("first", token)
    following = store.next_admission_token(token, "first")
    admit("second", following)
    with pytest.raises(ConflictError):
        store.next_admission_token(token, "first")
    admit("third", store.next_admission_token(following, "second"))
    assert {job.state for job in store.live_jobs()} == {JobState.PREPARING}
    assert store.count_live() == 3


def test_entry_is_pending_until_it_is_marked_done(store: Store) -> None:
    submit(store)
    assert store.is_pending("digits_1", "submitted")
    assert not store.is_pending("digits_1", "unknown")
    assert not store.is_pending("unknown", "submitted")
    store.mark_done("digits_1", ("submitted",), at(1))
    assert not store.is_pending("digits_1", "submitted")


def test_lease_is_held_until_it_is_released(store: Store) -> None:
    lease = must(store.take_lease("digits_1", at(0), at(60)))
    assert store.take_lease("digits_1", at(59), at(120)) is None
    assert store.take_lease("digits_2", at(59), at(120)), "it is for one name only"
    store.release_lease(lease)
    assert store.take_lease("digits_1", at(59), at(120))


def test_expired_lease_is_taken_by_the_next_delivery(store: Store) -> None:
    old = must(store.take_lease("digits_1", at(0), at(60)))
    new = must(store.take_lease("digits_1", at(60), at(120)))
    assert store.extend_lease(old, at(180)) is None
    store.release_lease(old)
    assert store.take_lease("digits_1", at(61), at(180)) is None, "the old holder cannot release it"
    longer = must(store.extend_lease(new, at(180)))
    assert store.take_lease("digits_1", at(130), at(240)) is None
    store.release_lease(longer)
    assert store.take_lease("digits_1", at(131), at(240))


def test_holder_takes_its_own_lease_again(store: Store) -> None:
    """Pub/Sub redelivers the message of a delivery that died."""
    first = must(store.take_lease("digits_1", at(0), at(60), "message-1"))
    assert store.take_lease("digits_1", at(1), at(61), "message-2") is None
    assert store.take_lease("digits_1", at(1), at(61)) is None
    second = must(store.take_lease("digits_1", at(1), at(61), "message-1"))
    assert store.extend_lease(first, at(180)) is None
    store.release_lease(first)
    longer = must(store.extend_lease(second, at(120)))
    assert store.take_lease("digits_1", at(100), at(180), "message-2") is None, "it was extended"
    third = must(store.take_lease("digits_1", at(100), at(180), "message-1"))
    store.release_lease(longer)
    assert store.take_lease("digits_1", at(101), at(180), "message-2") is None, "the old holder cannot release it"
    store.release_lease(third)
    assert store.take_lease("digits_1", at(101), at(180), "message-2")


def test_lease_without_a_holder_is_never_taken_again(store: Store) -> None:
    assert store.take_lease("digits_1", at(0), at(60))
    assert store.take_lease("digits_1", at(1), at(61)) is None
    assert store.take_lease("digits_1", at(1), at(61), "message-1") is None


def test_only_one_of_many_deliveries_takes_a_lease(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: store.take_lease("digits_1", at(0), at(60)), range(16)))
    assert sum(lease is not None for lease in taken) == 1


def test_replicas_are_counted_by_state(store: Store) -> None:
    submit(store)
    loaded = must(store.load("digits_1", "1-worker-0"))
    store.commit(loaded, *entry_of(loaded.state, exited(WORKER_0, 1)))
    state = must(store.load("digits_1", "1-worker-0")).state.replicas[0].state
    assert state is not ReplicaState.WAITING
    assert store.count_replicas("digits_1", 1, (ReplicaState.WAITING,)) == 2
    assert store.count_replicas("digits_1", 1, (ReplicaState.WAITING, state)) == 3
    assert store.count_replicas("digits_1", 1, (ReplicaState.COMPLETED,)) == 0
    assert store.count_replicas("digits_1", 2, (ReplicaState.WAITING,)) == 0
