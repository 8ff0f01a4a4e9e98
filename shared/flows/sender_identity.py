"""A replica speaks only for itself: who sent an event, held against whom it speaks of.

Pub/Sub knows topics, not senders: whoever may publish a replica's exit may publish any replica's. So each event of an
agent carries its VM's identity token, which Google signs and a program elsewhere cannot get:

    signature     Google's own keys (`shared.gcp.identity_tokens`)
    audience      this very incarnation: project, job, attempt, task, incarnation
    account       the one that the job's VMs run as: its own, or else the installation's
    VM            project, numeric id and name: the name of this replica, from which the id in the event follows
    time          valid when Pub/Sub took the event, however late it is delivered

A token that is absent, forged, foreign, or of another incarnation ends in the dead letter, with its reason, and changes
nothing. Hosts of a TPU slice are VMs of Google's own project: there the VM itself cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Final, Protocol

from shared.core.events import IncarnationRef
from shared.core.reconcile.plan import vm_name
from shared.errors import PermanentError

SKEW: Final = timedelta(minutes=5)
"""Between Google's clocks: more than is ever seen."""

ATTRIBUTE: Final = "identity"


class IdentityError(PermanentError):
    """Whoever sent it, it was not the replica that it speaks of."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a signed token says. The VM's are None where it names none."""

    audience: str
    account: str
    issued_at: datetime
    expires_at: datetime
    project: str | None = None
    instance_id: str | None = None
    instance_name: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Where a job's VMs are: the project, and the account that they run as."""

    project: str
    account: str


class Tokens(Protocol):
    def claims(self, token: str) -> Claims:
        """Raises IdentityError for what Google did not sign, TemporaryError where its keys cannot be had now."""
        ...


def token_of(attributes: Mapping[str, str]) -> str:
    """Empty where there is none. In pieces: Pub/Sub takes 1,024 bytes in a value, and a VM's token is longer."""
    pieces = (attributes.get(f"{ATTRIBUTE}-{nth}" if nth > 1 else ATTRIBUTE, "") for nth in count(1))
    return "".join(takewhile(bool, pieces))


def audience(project: str, subject: IncarnationRef) -> str:
    """docs/interfaces.md section 2."""
    replica_id = subject.replica_id
    return f"trainmaster/{project}/{subject.job_id}/{subject.attempt}/{replica_id.task_type}/{replica_id.index}/{subject.incarnation}"


def check(claims: Claims, subject: IncarnationRef, told_at: datetime, site: Site, *, is_slice: bool) -> None:
    """Raises IdentityError. `told_at`: when Pub/Sub took the event. `is_slice`: the job says so, not the event."""
    desired = audience(site.project, subject)
    if claims.audience != desired:
        raise IdentityError(f"identity: the token is for {claims.audience!r}, and the event of {desired!r}")
    if claims.account != site.account:
        raise IdentityError(f"identity: the token is of {claims.account!r}, and the job's VMs run as {site.account!r}")
    if not claims.issued_at - SKEW <= told_at <= claims.expires_at + SKEW:
        raise IdentityError(f"identity: the token was valid until {claims.expires_at}, and the event told at {told_at}")
    if not is_slice:
        _check_vm(claims, subject, site)


def _check_vm(claims: Claims, subject: IncarnationRef, site: Site) -> None:
    said = (claims.project, claims.instance_name, claims.instance_id)
    desired = (site.project, vm_name(subject.job_id, subject.replica_id), subject.vm.instance_id)
    if said != desired or subject.host is not None:
        raise IdentityError(f"identity: the token is of VM {said}, and the event of {desired}")
