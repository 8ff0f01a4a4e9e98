"""Firestore, Pub/Sub and the job's log: what every function needs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache

from shared.flows.record import Deps
from shared.gcp.cloud_logging import CloudLogging
from shared.gcp.firestore import Firestore
from shared.gcp.firestore_store import FirestoreStore
from shared.gcp.job_log import TIMEOUT_S, CloudJobLog
from shared.gcp.pubsub_bus import PubsubBus
from shared.ports import Bus, JobLog, Store
from shared.settings import settings


@cache
def store() -> Store:
    return FirestoreStore(Firestore(settings().project))


@cache
def bus() -> Bus:
    return PubsubBus(settings().project)


@cache
def job_log() -> JobLog:
    values = settings()
    return CloudJobLog(CloudLogging(values.project, values.logging_endpoint, TIMEOUT_S))


@cache
def deps() -> Deps:
    return Deps(
        store(),
        bus(),
        clock=lambda: datetime.now(UTC),
        sleep=time.sleep,
        job_log=job_log(),
        limits=settings().limits,
    )
