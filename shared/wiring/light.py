"""Firestore and Pub/Sub: what every function needs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache

from google.cloud import firestore

from shared.flows.record import Deps
from shared.gcp.firestore_store import FirestoreStore
from shared.gcp.pubsub_bus import PubsubBus
from shared.ports import Bus, Store
from shared.settings import settings


@cache
def store() -> Store:
    return FirestoreStore(firestore.Client(project=settings().project))


@cache
def bus() -> Bus:
    return PubsubBus(settings().project)


@cache
def deps() -> Deps:
    return Deps(store(), bus(), clock=lambda: datetime.now(UTC), sleep=time.sleep)
