"""What is stored beside the jobs: rejections, orphans and outcomes of requests."""

from __future__ import annotations

from dataclasses import replace

from tests.support.jobs import START, at
from trainmaster.core.model.capacity import Outcome
from trainmaster.ports import Orphan, Rejection, Store


def test_rejection_is_stored_once(store: Store) -> None:
    rejection = Rejection("k", "message:1", job_id=None, problems=("Field: x Error: y",), at=START)
    store.reject(rejection)
    store.reject(replace(rejection, at=at(1)))
    assert store.rejections() == (rejection,)


def test_rejections_are_read_in_bounded_numbers_whatever_was_refused_before(store: Store) -> None:
    stored = [
        Rejection(f"k{number}", f"message:{number}", job_id=None, problems=("x",), at=at(number))
        for number in range(6)
    ]
    for rejection in stored:
        store.reject(rejection)
    assert store.rejections(2) == (stored[5], stored[4])
    assert store.rejections(1, "message:3") == (stored[3],)
    assert store.rejections(1, "message:7") == ()


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


def test_latest_outcome_of_each_zone_and_machine_kind_is_kept(store: Store) -> None:
    zone, other = "us-central1-a", "us-central1-b"
    gpu = "Spot n1-standard-8 with 1 x nvidia-tesla-t4"
    full, cpu, elsewhere = (
        Outcome(zone, gpu, at(20)),
        Outcome(zone, "n1-standard-8", at(30)),
        Outcome(other, gpu, at(5)),
    )
    assert store.stockouts(START) == ()
    assert store.outcomes([full.key]) == store.outcomes([]) == ()
    for outcome in (replace(full, at=at(10), is_created=True), full, cpu, elsewhere):
        store.note_outcome(outcome)
    assert set(store.stockouts(START)) == {full, cpu, elsewhere}
    assert set(store.stockouts(at(20))) == {full, cpu}
    assert store.stockouts(at(31)) == ()
    assert set(store.outcomes([full.key, elsewhere.key, ("us-east1-b", gpu)])) == {full, elsewhere}
    created = replace(full, at=at(40), is_created=True)
    store.note_outcome(created)
    assert store.outcomes([full.key]) == (created,)
    assert set(store.stockouts(START)) == {cpu, elsewhere}
