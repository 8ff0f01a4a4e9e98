"""Leases, and the tokens that order admissions.

Whoever holds the lease of a name works on it alone. An admission lets queued jobs start under the
limits of the project; its token refuses the commit of another admission that read the same jobs.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.contract.store.building import must, submit
from tests.support.jobs import a_job, at
from trainmaster.core.events import ProvisioningStarted
from trainmaster.core.evolve import evolve
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.job import JobState, State
from trainmaster.core.rules.admission_queue import AdmissionQueue, Wait
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import Change
from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import AdmissionToken, Store, SweepRequests


def test_second_commit_on_an_admission_token_conflicts(store: Store) -> None:
    for name in ("first", "later"):  # the very first admission of a project, and another
        submit(store, replace(a_job(JobState.QUEUED), job_id=name))
        admission_token = store.admission_token()
        assert name in {job.job_id for job in admission_token.live.jobs}
        started, change = started_entry(name, must(store.load(name)).state)
        store.commit(must(store.load(name)), started, change, admission_token)
        with pytest.raises(ConflictError):
            store.commit(
                must(store.load(name)), replace(started, key="again"), Change(), admission_token
            )
        assert store.entry(name, "again") is None


def test_queue_of_a_thousand_jobs_is_stored_and_replaced(store: Store) -> None:
    assert store.queue() == AdmissionQueue()
    waits = {
        f"job_{n}": Wait(f"job_{n}", n, f"it needs {n} vcpus, and 8 of 8 are in use")
        for n in range(1, 1001)
    }
    for queue in (AdmissionQueue(at(1), waits), AdmissionQueue(at(2))):
        store.store_queue(queue)
        assert store.queue() == queue


def test_queue_that_another_release_stored_in_another_shape_is_empty(store: Store) -> None:
    """The next pass replaces it. An error would keep every pass from running."""
    if isinstance(store, FirestoreStore):
        other = zlib.compress(b'{"read_at": 1, "waits": {"a": {"place": 1}}}')
        store._client.document("control/admission_queue").set({"packed": other})
    assert store.queue() == AdmissionQueue()
    store.store_queue(AdmissionQueue(at(1)))
    assert store.queue() == AdmissionQueue(at(1))


def started_entry(job_id: str, state: State) -> tuple[LedgerEntry, Change]:
    event = ProvisioningStarted(job_id, at(1))
    decision = judge(state, event, at(1))
    before = counters(None, None)
    job_state = state.job.state
    entry = LedgerEntry(
        job_id, event.key, at(1), event, decision, before, before, job_state=job_state
    )
    return entry, evolve(state, decision, at(1))


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
    assert {job.state for job in store.live_jobs().jobs} == {JobState.PREPARING}
    assert store.count_live() == 3


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
    assert store.take_lease("digits_1", at(101), at(180), "message-2") is None, (
        "the old holder cannot release it"
    )
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


def test_each_note_about_the_requests_of_sweeps_keeps_the_other(store: Store) -> None:
    assert store.sweep_requests() == SweepRequests()
    store.note_sweep_reached(at(1))
    store.note_sweep_requests(at(2))
    assert store.sweep_requests() == SweepRequests(requested_at=at(2), reached_at=at(1))
    store.note_sweep_reached(at(3))
    store.note_sweep_requests(at(4))
    assert store.sweep_requests() == SweepRequests(requested_at=at(4), reached_at=at(3))
