"""Authentication of senders: an event about a replica must come from that replica's own VM.

Pub/Sub authorizes topics, not messages: any VM that may publish its own exit may also publish another replica's. Every
agent event therefore carries its VM's identity token, which Google signs and which no other VM can obtain:

    signature     made with Google's keys (`shared.ports.Tokens`)
    audience      exactly this incarnation: project, job, attempt, task, incarnation
    account       the service account of the job's VMs: the job's own, else the installation's
    VM            project, name and numeric id; the name follows from the replica
    time          valid when Pub/Sub accepted the event, however late it is delivered

An event whose token is absent, forged, or of another VM or incarnation goes to the dead-letter topic and changes
nothing. The hosts of a TPU slice are VMs in a project of Google's, so for slices the VM is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Final

from shared.core.events import IncarnationRef, ReplicaExited, VmLost, VmReady
from shared.core.intake.system_events import SystemEvent
from shared.core.model.job import Job
from shared.core.model.vm_names import vm_name
from shared.messaging import topics
from shared.messaging.push import Message
from shared.ports import Claims, IdentityError, Store, Tokens

CLOCK_SKEW_MAX: Final = timedelta(minutes=5)
"""Allowed difference between Google's clocks; much more than was ever observed."""

IDENTITY_ATTRIBUTE: Final = "identity"
"""Attribute with the first part of the token; the others are in `identity-2`, `identity-3`, ..."""


@dataclass(frozen=True, slots=True)
class AuthDeps:
    """The ports and settings that authentication uses."""

    tokens: Tokens
    store: Store
    project: str
    account: str
    """The installation's service account for VMs. If it is empty, events are not authenticated."""


def authenticate(event: VmReady | ReplicaExited | VmLost, message: Message, deps: AuthDeps) -> None:
    """Raise IdentityError unless the event's own replica sent the message. Raises TemporaryError for network errors."""
    if not deps.account:
        return
    token = read_token(message.attributes)
    if not token:
        raise IdentityError("identity: the event carries no token")
    subject, claims = event.subject, deps.tokens.claims(token)
    # The stored job is read only if it can matter: for a slice (a slice of one host does not send a host number), or
    # for a service account of the job's own.
    may_be_slice = subject.host is not None or claims.instance_name != vm_name(subject.job_id, subject.replica_id)
    job = _load_job(subject.job_id, deps.store) if may_be_slice or claims.account != deps.account else None
    account = (job and job.plan.service_account) or deps.account
    _check_token(claims, subject, message.published_at, deps.project, account)
    if not (may_be_slice and job is not None and _is_slice(subject, job)):
        _check_vm(claims, subject, deps.project)


def authenticate_loss(event: VmLost | SystemEvent, message: Message, deps: AuthDeps) -> None:
    """Authenticate an agent's maintenance message, or an entry of Compute's audit log.

    Entries of the audit log have no token. They must come through a topic of their own, to which VMs cannot publish,
    because an entry can report the loss of any VM.
    """
    if isinstance(event, VmLost):
        authenticate(event, message, deps)
    elif deps.account and not message.subscription.endswith(f"/{topics.SYSTEM_EVENTS}"):
        raise IdentityError(f"identity: an audit log entry must come through the topic {topics.SYSTEM_EVENTS}")


def read_token(attributes: Mapping[str, str]) -> str:
    """Return the token, or an empty string.

    It is split over several attributes: Pub/Sub allows 1,024 bytes per value, and a VM's token is longer.
    """
    names = (f"{IDENTITY_ATTRIBUTE}-{number}" if number > 1 else IDENTITY_ATTRIBUTE for number in count(1))
    return "".join(takewhile(bool, (attributes.get(name, "") for name in names)))


def expected_audience(project: str, subject: IncarnationRef) -> str:
    """Return the audience that the agent requests its token for: docs/interfaces.md, section 2."""
    task = f"{subject.replica_id.task_type}/{subject.replica_id.index}"
    return f"trainmaster/{project}/{subject.job_id}/{subject.attempt}/{task}/{subject.incarnation}"


def _load_job(job_id: str, store: Store) -> Job | None:
    loaded = store.load(job_id)
    return loaded.state.job if loaded else None


def _is_slice(subject: IncarnationRef, job: Job) -> bool:
    """Return whether this replica is a TPU slice according to the stored job. The event itself is not trusted."""
    groups = {group.task_type: group for group in job.plan.groups}
    group = groups.get(subject.replica_id.task_type)
    return group is not None and group.tpu is not None


def _check_token(claims: Claims, subject: IncarnationRef, published_at: datetime, project: str, account: str) -> None:
    expected = expected_audience(project, subject)
    if claims.audience != expected:
        raise IdentityError(f"identity: the token is for {claims.audience!r}, but the event is of {expected!r}")
    if claims.account != account:
        raise IdentityError(f"identity: the token is of {claims.account!r}, but the job's VMs run as {account!r}")
    if not claims.issued_at - CLOCK_SKEW_MAX <= published_at <= claims.expires_at + CLOCK_SKEW_MAX:
        raise IdentityError(
            f"identity: the token was valid until {claims.expires_at}, but the event was published at {published_at}"
        )


def _check_vm(claims: Claims, subject: IncarnationRef, project: str) -> None:
    claimed = (claims.project, claims.instance_name, claims.instance_id)
    expected = (project, vm_name(subject.job_id, subject.replica_id), subject.vm.instance_id)
    if claimed != expected or subject.host is not None:
        raise IdentityError(f"identity: the token is of VM {claimed}, but the event is of {expected}")
