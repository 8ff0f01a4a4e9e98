"""Jobs and replicas: what a commit writes, what is read back, and which writer wins."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.contract.store.building import entry_of, load_with_worker_0, must, submit
from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, a_job, at, exited, ready
from trainmaster.core.evolve import evolve
from trainmaster.core.ledger import LedgerEntry, counters, fold
from trainmaster.core.model.job import Job, JobState, Label, State
from trainmaster.core.model.learning_curve import points_max
from trainmaster.core.model.machine_set import HeldMachines
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.search_space import Parameter, ParameterKind
from trainmaster.core.model.tuning import EarlierTrial, Measurement, Trial, TrialState, Tuning
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import Change
from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.documents import job_document
from trainmaster.ports import AlreadyRecordedError, Store


def test_empty_store_returns_nothing(store: Store) -> None:
    assert store.load("digits_1") is None
    assert store.load_attempt("digits_1") is None
    assert store.entry("digits_1", "submitted") is None
    assert store.ledger("digits_1") == ()
    assert store.count_ready("digits_1", attempt=1, floor=0) == 0


def test_job_is_read_back_to_the_microsecond(store: Store) -> None:
    created_at = START.replace(microsecond=123457)
    held = Round(is_held=True, ordered_at=created_at)
    new = a_job(JobState.QUEUED, created_at=created_at, round=held, labels=(Label("a", "b"),))
    job = submit(store, new)
    loaded = must(store.load_attempt("digits_1"))
    assert loaded.state.job == job
    assert loaded.state.replicas == tuple(
        Replica(1, replica_id, ordered_at=START) for replica_id in (CHIEF, WORKER_0, WORKER_1)
    )
    assert loaded.state.whole
    assert must(store.load("digits_1")).state == State(job)
    assert must(store.load("digits_1", "1-worker-1")).state.replicas == (
        Replica(1, WORKER_1, ordered_at=START),
    )
    assert must(store.load("digits_1", "9-worker-9")).state.replicas == ()


def test_event_recorded_twice_raises_and_changes_nothing(store: Store) -> None:
    submit(store)
    loaded = load_with_worker_0(store)
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    again = load_with_worker_0(store)
    with pytest.raises(AlreadyRecordedError):
        store.commit(again, entry, change)
    with pytest.raises(AlreadyRecordedError):
        submit(store, a_job(JobState.QUEUED, submission="another"))
    assert load_with_worker_0(store).state == again.state


def test_commit_on_a_stale_state_conflicts_and_writes_nothing(store: Store) -> None:
    submit(store)
    loaded = load_with_worker_0(store)
    first, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, first, change)
    late = replace(first, key="1-worker-0-1-other")
    with pytest.raises(ConflictError):
        store.commit(loaded, late, change)
    assert store.entry("digits_1", late.key) is None


def test_ignored_event_is_recorded_despite_other_writers(store: Store) -> None:
    submit(store)
    loaded = load_with_worker_0(store)
    first, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, first, change)
    entry, nothing = entry_of(loaded.state, exited(WORKER_0, 1, incarnation=9))
    store.commit(loaded, entry, nothing)
    assert store.entry("digits_1", entry.key) == entry


def test_replicas_of_an_earlier_attempt_are_not_read(store: Store) -> None:
    submit(store)
    unused = must(store.load_attempt("digits_1")).state.replicas
    loaded = load_with_worker_0(store)
    entry, change = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, change)
    ended = must(store.load_attempt("digits_1"))
    job = replace(ended.state.job, attempt=2, version=ended.state.job.version + 1)
    second = tuple(replace(replica, attempt=2) for replica in unused)
    store.commit(ended, replace(entry, key="second-attempt"), Change(job=job, replicas=second))
    assert must(store.load_attempt("digits_1")).state.replicas == second
    assert must(store.load("digits_1", "2-chief-0")).state.replicas == (second[0],)


@pytest.mark.parametrize(
    ("state", "machines", "replicas_read"),
    [
        (JobState.QUEUED, None, 0),
        (JobState.PREPARING, None, 3),
        (JobState.RUNNING, None, 3),
        (JobState.SUCCEEDED, None, 0),
        (JobState.CANCELLED, None, 0),
        (JobState.SUCCEEDED, HeldMachines("digits_1", 1), 0),
    ],
)
def test_replicas_are_read_if_the_vms_of_the_job_depend_on_them(
    store: Store, state: JobState, machines: HeldMachines | None, replicas_read: int
) -> None:
    submit(store)
    loaded = must(store.load_attempt("digits_1"))
    assert len(loaded.state.replicas) == 3
    job = replace(loaded.state.job, state=state, machines=machines)
    job = replace(job, version=job.version + 1)
    entry, _ = entry_of(loaded.state, exited(WORKER_0, 1))
    store.commit(loaded, entry, Change(job=job))
    needed = must(store.load_attempt("digits_1", if_needed=True))
    whole = must(store.load_attempt("digits_1"))
    assert needed.state.job == whole.state.job == job
    assert (len(needed.state.replicas), needed.state.whole) == (
        replicas_read,
        replicas_read > 0,
    )
    assert len(whole.state.replicas) == 3
    entries = store.pending_entries(needed)
    assert set(entries.included) == {"submitted", entry.key}
    assert entries.later == ()


def test_replicas_of_an_attempt_have_the_order_of_the_plan(store: Store) -> None:
    plan = a_job(JobState.QUEUED).plan
    groups = tuple(
        replace(group, count=11) if group.task_type is TaskType.WORKER else group
        for group in plan.groups
    )
    submit(store, a_job(JobState.QUEUED, plan=replace(plan, groups=groups)))
    state = must(store.load_attempt("digits_1")).state
    assert [replica.replica_id for replica in state.replicas] == list(state.job.plan.replica_ids)
    assert len(state.replicas) == 12


def test_ready_replicas_are_counted_per_attempt_and_floor(store: Store) -> None:
    """The floor is the least VM generation that counts. All VMs here are of generation 1.

    A round, a common start of all replicas, has the key `ATTEMPT-ROUND`.
    """
    submit(store)
    for replica_id in (CHIEF, WORKER_1):
        loaded = must(store.load("digits_1", f"1-{replica_id}"))
        event = ready(replica_id)
        decision = judge(loaded.state, event, at(5))
        none = counters(None, None)
        entry = LedgerEntry(
            "digits_1", event.key, at(5), event, decision, none, none, JobState.QUEUED
        )
        store.commit(loaded, entry, evolve(loaded.state, decision, at(5)))
    for floor, count in ((0, 2), (1, 2), (2, 0)):
        assert store.count_ready("digits_1", attempt=1, floor=floor) == count
        assert store.count_ready_for("digits_1", round_key="1-1", floor=floor) == count
    assert store.count_ready("digits_1", attempt=2, floor=0) == 0
    assert store.count_ready_for("digits_1", round_key="1-2", floor=0) == 0


@pytest.mark.parametrize("store", ["firestore"], indirect=True)
def test_attempt_is_read_as_of_one_moment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits between the two queries of the read.

    A job in its old zone, with replicas that were requested in the next zone, would be wrong about
    every VM.
    """
    submit(store)
    before = must(store.load_attempt("digits_1"))
    find = store._find  # type: ignore[attr-defined]

    def write_between(*args: object, **options: object) -> object:
        entry, change = entry_of(before.state, exited(WORKER_0, 1))
        store.commit(load_with_worker_0(store), entry, change)
        return find(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_find", write_between)
        assert must(store.load_attempt("digits_1")).state == before.state
    assert must(store.load_attempt("digits_1")).state != before.state


def a_large_study() -> Job:
    """The largest that the job format accepts, of eight numbers with all their digits."""
    values = tuple(f"-{nth}.12345678901234567e-300" for nth in range(8))
    trials = tuple(
        Trial(number, values, TrialState.SUCCEEDED, at(1), at(2), Measurement(value=0.5, step=10))
        for number in range(1, 1001)
    )
    parameters = tuple(
        Parameter(f"p{nth}", ParameterKind.DOUBLE, low=0, high=1) for nth in range(8)
    )
    tuning = Tuning(parameters, max_trials=1000, trials=trials, last_error="x" * 4096)
    return a_job(JobState.RUNNING, tuning=tuning, spec_json="x" * 65536)


def test_tuning_job_of_a_thousand_trials_is_read_back(store: Store) -> None:
    job = submit(store, a_large_study())
    assert must(store.load(job.job_id)).state.job == job


DOCUMENT_BYTES_MAX = 1 << 20
"""Firestore's limit."""


def size_of(value: object) -> int:
    """Return the number of bytes that Firestore counts for the value.

    Source: Firestore's documented storage size calculations.
    """
    match value:
        case str():
            return len(value.encode()) + 1
        case bool() | None:
            return 1
        case list():
            return sum(map(size_of, value))
        case dict():
            return sum(size_of(key) + size_of(item) for key, item in value.items())
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
    assert size < DOCUMENT_BYTES_MAX
    assert size > DOCUMENT_BYTES_MAX / 2, "the study of this test is large"


def test_exactly_one_of_many_writers_wins_each_time(store: Store) -> None:
    submit(store)
    times, writers = 5, 4
    won: list[int] = []

    def write(writer: int) -> None:
        for nth in range(times):
            while True:
                loaded = load_with_worker_0(store)
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
    assert len(won) == times
    assert load_with_worker_0(store).state.replicas[0].restarts_used == times
    assert fold(store.ledger("digits_1")) == must(store.load_attempt("digits_1")).state


def test_replicas_are_counted_by_state(store: Store) -> None:
    submit(store)
    loaded = load_with_worker_0(store)
    store.commit(loaded, *entry_of(loaded.state, exited(WORKER_0, 1)))
    state = load_with_worker_0(store).state.replicas[0].state
    assert state is not ReplicaState.WAITING
    assert store.count_replicas("digits_1", 1, (ReplicaState.WAITING,)) == 2
    assert store.count_replicas("digits_1", 1, (ReplicaState.WAITING, state)) == 3
    assert store.count_replicas("digits_1", 1, (ReplicaState.COMPLETED,)) == 0
    assert store.count_replicas("digits_1", 2, (ReplicaState.WAITING,)) == 0
