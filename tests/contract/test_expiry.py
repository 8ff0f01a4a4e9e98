"""Documents on Firestore's emulator that TTL policies may delete. tests/infra/test_indexes.py
compares the policies.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from google.cloud.firestore import Client

from tests.support.jobs import CHIEF, START, a_spec
from tests.support.world import World
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.timeouts import HISTORY_KEPT
from trainmaster.flows.user_requests import cancel_job, delete_job, release_machines
from trainmaster.gcp.firestore import states
from trainmaster.gcp.firestore.documents import EXPIRE_AT
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import Rejection


@pytest.fixture
def world(client: Client) -> World:
    """A world whose replicas are judged each alone, so that a crash is a rerun."""
    store: Any = FirestoreStore(client)
    world = World(store=store, is_independent=True)
    world.start_running()
    world.deliver()
    return world


def expiry(client: Client, path: str) -> dict[str, datetime | None]:
    """Return the expiry of each document in a collection, by its id; None: it stays."""
    snapshots: list[Any] = client.collection(path).get()
    return {snapshot.id: (snapshot.to_dict() or {}).get(EXPIRE_AT) for snapshot in snapshots}


def test_replicas_of_an_earlier_attempt_expire_and_present_ones_stay(
    client: Client, world: World
) -> None:
    path = f"jobs/{world.job_id}/replicas"
    assert set(expiry(client, path).values()) == {None}
    world.kill(CHIEF, signal=6)
    world.deliver()
    assert world.job.attempt == 2
    kept = {key: at is None for key, at in expiry(client, path).items()}
    assert kept == {key: key.startswith("2-") for key in kept}
    assert len(kept) == 6
    past = [at for at in expiry(client, path).values() if at is not None]
    rerun = next(entry for entry in world.ledger if entry.decision.action.kind == "rerun_job")
    assert {at - HISTORY_KEPT for at in past} == {rerun.at}


def test_history_of_a_deleted_job_expires_and_the_job_stays(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "EXPIRY_BATCH", 2)
    cancel_job(world.job_id, "me", world.deps)
    world.deliver()
    assert delete_job(world.job_id, "request-1", world.deps, by="anna")
    assert world.store.pending_keys(world.job_id), "a crash before the history expires is repaired"
    world.deliver()
    assert world.store.pending_keys(world.job_id) == ()
    deleted_at = world.job.deleted_at
    assert deleted_at is not None
    for collection in ("ledger", "replicas"):
        times = expiry(client, f"jobs/{world.job_id}/{collection}")
        assert len(times) > 2
        assert set(times.values()) == {deleted_at + HISTORY_KEPT}
    assert expiry(client, "jobs") == {world.job_id: None}


def test_history_of_a_job_that_is_not_deleted_stays(client: Client, world: World) -> None:
    cancel_job(world.job_id, "me", world.deps)
    world.deliver()
    assert set(expiry(client, f"jobs/{world.job_id}/ledger").values()) == {None}


def test_rejections_and_outcomes_expire(client: Client, world: World) -> None:
    world.store.reject(
        Rejection("key", "gs://b/jobs/x.yaml#1", job_id=None, problems=("wrong",), at=START)
    )
    world.store.note_outcome(Outcome("us-central1-a", "n1-standard-4", START))
    for collection in ("rejections", "capacity"):
        assert set(expiry(client, collection).values()) == {START + HISTORY_KEPT}


def test_released_machine_set_stays_for_the_costs_of_its_jobs(client: Client) -> None:
    store: Any = FirestoreStore(client)
    world = World(store=store)
    keeping = {**a_spec(), "trainmaster": {"keepMachines": "900s"}}
    world.submit(keeping, source="cli:1/anna")
    world.deliver()
    world.report_all_ready()
    world.exit_program(world.job.plan.primary, 0)
    world.deliver()
    assert release_machines(world.job_id, world.deps, by="anna")
    assert expiry(client, "machines") == {world.job_id: None}
