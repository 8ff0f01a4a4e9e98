"""Authentication of senders: an event about a replica must come from that replica's own VM.

Pub/Sub authorizes topics, not messages: any VM that may publish its own exit may also publish
another replica's. Every agent event therefore carries its VM's identity token, which Google signs
and which no other VM can obtain:

    signature   made with Google's keys (`trainmaster.ports.Tokens`)
    audience    exactly this incarnation (execution of the replica's program): project, job,
                attempt, task, incarnation; and the secret of the job's tenure (its use of VMs that
                other jobs use before or after it), if it may take over VMs
    account     the service account of the job's VMs: the job's own, else the installation's
    VM          project, zone, name and numeric id. The name follows from the replica, the zone is
                one of the job's, and the id is the stored one as soon as the replica has reported
                ready
    host        for a TPU slice: a machine that is none of our VMs, and the same one that first
                reported ready as this host of this node
    time        valid when Pub/Sub accepted the event, however late it is delivered

An event whose token is absent, forged, or of another VM or incarnation goes to the dead-letter
topic and changes nothing. docs/decisions/0033-acting-for-others.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from trainmaster.core.events import IncarnationRef, VmLost, VmNoticed
from trainmaster.core.intake.system_events import SystemEvent, log_name
from trainmaster.core.model.installation import name_in_installation
from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica import Replica, replica_key
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.vm_names import VM_NAME, vm_name
from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster.ports import Claims, IdentityError, Loaded, Store, Tokens

CLOCK_SKEW_MAX: Final = timedelta(minutes=5)
"""Allowed difference between Google's clocks; much more than was ever observed."""

AUDIENCE_PARTS: Final = 7
"""Parts of an audience before the secret of a tenure."""
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


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The sender of an event, and what the check has read of the job."""

    machine: str = ""
    """The host of a slice that sent the event, as `PROJECT/INSTANCE_ID`; empty for a VM."""
    loaded: Loaded | None = None
    """The documents that the check has read: the job, and the replica that the event is about."""


def authenticate(subject: IncarnationRef, message: Message, deps: AuthDeps | None) -> Authenticated:
    """Return the machine that sent the event, with the documents that were read.

    `subject` is the replica that the event is about: the rest of the message is decoded after this
    check. Without `deps`, as in a simulation, senders are not authenticated. Raises IdentityError
    unless that replica itself sent the message, and TemporaryError for network errors.
    """
    if deps is None or not deps.account:
        return Authenticated()
    token = read_token(message.attributes)
    if not token:
        raise IdentityError("identity: the event carries no token")
    claims = deps.tokens.claims(token)
    _check_audience(claims, expected_audience(deps.project, subject), may_have_key=True)
    key = replica_key(subject.attempt, subject.replica_id)
    loaded = deps.store.load(subject.job_id, key)
    if loaded is None:
        raise IdentityError(f"identity: there is no job {subject.job_id}")
    job = loaded.state.job
    replica = loaded.state.find(subject.attempt, subject.replica_id)
    _check_audience(claims, expected_audience(deps.project, subject, job))
    _check_account(claims, job.plan.access.service_account or deps.account)
    _check_time(claims, message)
    hosts_max = _most_hosts(job.plan, subject.replica_id.task_type)
    if hosts_max is not None:
        machine = _check_host(claims, subject, replica, hosts_max, deps.project)
        return Authenticated(machine, loaded)
    _check_vm(claims, subject, replica, job, deps.project)
    return Authenticated(loaded=loaded)


def _most_hosts(plan: Plan, task_type: TaskType) -> int | None:
    """Return how many hosts a TPU slice of this role may have, in any of the plan's options; None
    if the role has no TPUs.
    """
    groups = list(plan.groups)
    for option in plan.where.options:
        groups.extend(option.groups)
    hosts = [group.hosts for group in groups if group.task_type == task_type and group.tpu]
    return max(hosts, default=None)


def authenticate_loss(
    event: VmLost | VmNoticed | SystemEvent, message: Message, deps: AuthDeps | None
) -> Authenticated:
    """Authenticate an agent's maintenance message, or an entry of Compute Engine's audit log.

    Entries of the audit log have no token. They must come through a topic of their own, to which
    VMs cannot publish, because an entry can report the loss of any VM. The name of its log must be
    exactly that of Compute Engine's log.
    """
    if not isinstance(event, SystemEvent):
        return authenticate(event.subject, message, deps)
    if deps is None or not deps.account:
        return Authenticated()
    topic = name_in_installation(topics.SYSTEM_EVENTS)
    if not message.subscription.endswith(f"/{topic}"):
        raise IdentityError(f"identity: an audit log entry must come through the topic {topic}")
    if event.log != log_name(deps.project):
        raise IdentityError(
            f"identity: the entry is in the log {event.log!r}, not in {log_name(deps.project)}"
        )
    return Authenticated()


def read_token(attributes: Mapping[str, str]) -> str:
    """Return the token, or an empty string.

    It is split over several attributes: Pub/Sub allows 1,024 bytes per value, and a VM's token is
    longer.
    """
    token = ""
    number = 1
    while True:
        name = IDENTITY_ATTRIBUTE if number == 1 else f"{IDENTITY_ATTRIBUTE}-{number}"
        part = attributes.get(name, "")
        if not part:
            return token
        token += part
        number += 1


def expected_audience(project: str, subject: IncarnationRef, job: Job | None = None) -> str:
    """Return the audience that the agent requests its token for: docs/interfaces.md, section 2.

    It ends with the secret of the job's tenure, if the job may take over VMs: a program can obtain
    a token for any audience that it can predict, also for the job that takes its VM later.
    """
    task = f"{subject.replica_id.task_type}/{subject.replica_id.index}"
    run = f"{subject.job_id}/{subject.attempt}/{task}/{subject.incarnation}"
    key = f"/{job.machines.key}" if job and job.machines else ""
    return f"trainmaster/{project}/{run}{key}"


def _check_audience(claims: Claims, expected: str, *, may_have_key: bool = False) -> None:
    """Raise IdentityError for a token with another audience.

    `may_have_key`: accept any secret at its end, because the job's own is not known yet.
    """
    if claims.audience == expected:
        return
    if not (may_have_key and claims.audience.startswith(f"{expected}/")):
        raise IdentityError(
            f"identity: the token is for {claims.audience!r}, but the event belongs to"
            f" {without_key(expected)!r}"
        )


def without_key(audience: str) -> str:
    """Return an audience as it may be shown: without the secret of the tenure."""
    return "/".join(audience.split("/")[:AUDIENCE_PARTS])


def _check_account(claims: Claims, account: str) -> None:
    if claims.account != account:
        raise IdentityError(
            f"identity: the token belongs to {claims.account!r}, but the job's VMs run as"
            f" {account!r}"
        )


def _check_time(claims: Claims, message: Message) -> None:
    published_at = message.published_at
    if not claims.issued_at - CLOCK_SKEW_MAX <= published_at <= claims.expires_at + CLOCK_SKEW_MAX:
        raise IdentityError(
            f"identity: the token was valid until {claims.expires_at}, but the event was published"
            f" at {published_at}"
        )


def _check_vm(
    claims: Claims, subject: IncarnationRef, replica: Replica | None, job: Job, project: str
) -> None:
    """Raise IdentityError unless the token is of the VM that the replica has now."""
    claimed = (claims.project, claims.zone, claims.instance_name, claims.instance_id)
    expected = (
        project,
        subject.vm.zone,
        vm_name(job.set_id, subject.replica_id),
        subject.vm.instance_id,
    )
    if claimed != expected or subject.host is not None:
        raise IdentityError(
            f"identity: the token belongs to VM {claimed}, but the event belongs to {expected}"
        )
    zones = job.plan.where.zones
    if subject.vm.zone not in zones:
        raise IdentityError(
            f"identity: the token belongs to a VM in {subject.vm.zone}, not in {zones}"
        )
    known = None
    if replica is not None and replica.vm_generation == subject.vm_generation:
        known = replica.instance_id
    if known not in (None, claims.instance_id):
        raise IdentityError(
            f"identity: the token belongs to VM {claims.instance_id}, but the replica runs on VM"
            f" {known}"
        )


def _check_host(
    claims: Claims, subject: IncarnationRef, replica: Replica | None, hosts_max: int, project: str
) -> str:
    """Check the sender of a slice's event, and return the sender's machine.

    Google chooses the names and numbers of the hosts' machines, so they cannot be predicted. A
    token of one of our VMs is rejected: a VM is not a host of a slice.
    """
    if not (claims.project and claims.instance_id and claims.instance_name):
        raise IdentityError(
            "identity: the token of a slice's host must name its machine (format=full)"
        )
    machine = f"{claims.project}/{claims.instance_id}"
    host = subject.host or 0
    if claims.project == project and VM_NAME.fullmatch(claims.instance_name):
        raise IdentityError(
            f"identity: the token belongs to VM {claims.instance_name}, which is not a host of a"
            " TPU slice"
        )
    if host >= hosts_max:
        raise IdentityError(
            f"identity: the event belongs to host {host}, but the slice has {hosts_max}"
        )
    known = None
    if replica is not None and replica.vm_generation == subject.vm_generation:
        known = replica.host_vm(host)
    if known not in (None, machine):
        raise IdentityError(
            f"identity: the token belongs to machine {machine}, but host {host} runs on {known}"
        )
    return machine
