"""Who sent an agent's event: asked before it is judged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TypeVar

from shared.core.events import ReplicaExited, VmLost, VmReady
from shared.core.intake.system_events import SystemEvent
from shared.core.model.job import Job
from shared.core.reconcile.plan import vm_name
from shared.flows import sender_identity
from shared.flows.sender_identity import IdentityError, Site, Tokens
from shared.gcp.identity_tokens import IdentityTokens
from shared.messaging import topics
from shared.messaging.push import Message
from shared.ports import Store
from shared.settings import settings
from shared.wiring import core_services

Event = TypeVar("Event", VmReady, ReplicaExited, VmLost)


@cache
def tokens() -> Tokens:
    return IdentityTokens(settings().identity_keys)


def proven(event: Event, message: Message) -> Event:
    """The event, if the replica that it speaks of sent it. Raises IdentityError, or TemporaryError."""
    site = Site(settings().project, settings().worker_service_account)
    if not site.account:
        return event
    token = sender_identity.token_of(message.attributes)
    if not token:
        raise IdentityError("identity: the event carries no token")
    subject, claims = event.subject, tokens().claims(token)
    # A slice of one host does not say which host it is. A VM with its replica's name and the installation's account needs
    # no look at the job.
    may_be_slice = subject.host is not None or claims.instance_name != vm_name(subject.job_id, subject.replica_id)
    job = _job_of(event, core_services.deps().store) if may_be_slice or claims.account != site.account else None
    if job is not None and job.plan.service_account:
        site = replace(site, account=job.plan.service_account)
    is_slice = may_be_slice and job is not None and _is_slice(event, job)
    sender_identity.check(claims, subject, message.told_at, site, is_slice=is_slice)
    return event


def proven_loss(event: VmLost | SystemEvent, message: Message) -> VmLost | SystemEvent:
    """Compute's log has a topic of its own, to which no VM may publish: any VM could say that of any other."""
    if isinstance(event, VmLost):
        return proven(event, message)
    if settings().worker_service_account and not message.subscription.endswith(f"/{topics.SYSTEM_EVENTS}"):
        raise IdentityError(f"identity: an entry of Compute's log that did not come through {topics.SYSTEM_EVENTS}")
    return event


def _job_of(event: VmReady | ReplicaExited | VmLost, store: Store) -> Job | None:
    loaded = store.load(event.subject.job_id)
    return loaded.state.job if loaded else None


def _is_slice(event: VmReady | ReplicaExited | VmLost, job: Job) -> bool:
    groups = {group.task_type: group for group in job.plan.groups}
    group = groups.get(event.subject.replica_id.task_type)
    return group is not None and group.tpu is not None
