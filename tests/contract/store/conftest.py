"""The Store on each of its adapters: in memory, and on Firestore's emulator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import Store
from trainmaster_local.memory.store import MemoryStore


@pytest.fixture(params=["memory", "firestore"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store, in memory and on Firestore's emulator."""
    if request.param == "memory":
        yield MemoryStore()
        return
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", request.getfixturevalue("firestore_emulator"))
    store = FirestoreStore(clients.firestore_client(f"test-{uuid.uuid4().hex[:12]}"))
    yield store
    store.close()
