"""The adapters that every function needs: Firestore, Pub/Sub and Cloud Logging.

Each is built at its first use.
"""

from __future__ import annotations

import time
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from trainmaster.core.intake.named_resources import AllowedResources, ResourceKind
from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.gcp.job_log import CloudJobLog
from trainmaster.ports import Bus, JobLog, Store
from trainmaster.settings import Addressing, settings

if TYPE_CHECKING:
    from trainmaster.flows.commit.record import Deps
    from trainmaster.flows.job_creation.deps import CreationDeps


@cache
def store() -> Store:
    """Return the stored state, in the project's Firestore database."""
    return FirestoreStore(clients.firestore_client(settings().project))


@cache
def bus() -> Bus:
    """Return where events and requests are published: the topics of the project."""
    # Imported here, as below, because a command that only reads publishes nothing.
    from trainmaster.gcp.pubsub_bus import PubsubBus

    return PubsubBus(clients.publisher(), settings().project)


@cache
def notifications() -> Bus | None:
    """Return where job notifications are published; None: this process publishes none.

    A command does not know whether its installation publishes any (the setting is None, see
    `deps`). A function knows that it does not (False).
    """
    values = settings()
    if not values.notifications:
        return None
    from trainmaster.gcp.pubsub_bus import PubsubBus, as_temporary_error

    return PubsubBus(clients.publisher(), values.project, as_temporary_error)


@cache
def job_log() -> JobLog:
    """Return the log in which the platform writes lines about a job."""
    values = settings()
    return CloudJobLog(values.project, values.logging_endpoint)


def allowed_resources() -> AllowedResources:
    """Return the resources that every job may name: those of the setting, and the installation's
    own.
    """
    values = settings()
    network = values.network
    if not network.startswith("projects/"):
        network = f"projects/{values.project}/{network}"
    own = [f"{ResourceKind.NETWORK}={network}"]
    if values.worker_service_account:
        own.append(f"{ResourceKind.SERVICE_ACCOUNT}={values.worker_service_account}")
    return AllowedResources(values.project, (*values.allowed_resources, *own))


@cache
def deps() -> Deps:
    """Return the ports and settings that the flows of all functions use."""
    # Imported here, because the command line needs the other adapters only.
    from trainmaster.flows.commit.record import Deps

    return Deps(
        store(),
        bus(),
        clock=lambda: datetime.now(UTC),
        sleep=time.sleep,
        notifications=notifications(),
        # A command leaves those that it causes to the sweep, which runs every minute.
        leaves_notifications=settings().notifications is None,
        job_log=job_log(),
        limits=settings().limits,
    )


@cache
def creation_deps() -> CreationDeps:
    """Return `deps` with what the creation of a trial's job needs.

    Nothing in it looks up resources of Google Cloud: a trial names those of its tuning job, which
    were looked up when that was submitted.
    """
    from trainmaster.flows.job_creation.deps import CreationDeps

    common = {field.name: getattr(deps(), field.name) for field in fields(deps())}
    values = settings()
    return CreationDeps(
        **common,
        allowed=allowed_resources(),
        algorithms=values.algorithms,
        gcsfuse=values.gcsfuse,
        gcs_in_containers=values.addressing is not Addressing.EMULATOR,
        messages_per_minute=values.messages_per_minute,
        regions=values.regions,
    )
