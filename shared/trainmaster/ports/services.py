"""Services behind one small interface each: messages, the time, a job's log, suggestions,
permissions, identity tokens, and the resources that a job names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from trainmaster.core.intake.registry_images import RegistryImage
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.tuning import Tuning
from trainmaster.core.reporting.job_log import ServiceLine
from trainmaster.errors import PermanentError


class Existence(StrEnum):
    """The result of a look-up."""

    EXISTS = "exists"
    MISSING = "missing"
    UNKNOWN = "unknown"  # the installation may not see the resource, or its API is not enabled


class Resources(Protocol):
    """Reads of the control plane of Google Cloud.

    No method reads the content of a secret or an image.

    All methods raise TemporaryError for transient errors.
    """

    def service_account(self, email: str) -> Existence:
        """Look up a service account by its e-mail address."""
        ...

    def secret_version(self, name: str) -> Existence:
        """Look up a secret version: `SECRET`, `SECRET/versions/VERSION`, or a full name.

        The default version is the latest one. MISSING also if the version is disabled or destroyed.
        """
        ...

    def image(self, image: RegistryImage) -> tuple[Existence, str]:
        """Look up an image by its tag or digest.

        Return its digest, too, `sha256:…`; empty: it is not known.
        """
        ...


class Advisor(Protocol):
    """Google's advice about capacity."""

    def advise(
        self, requests: Sequence[tuple[str, TaskGroup]], now: datetime
    ) -> Mapping[tuple[str, str], float]:
        """Return the chance, from 0 to 1, that Spot VMs of these roles can be created: by zone and
        kind of machine (`machine_kind`).

        `requests`: zones and roles. Those about which Google gives no advice are missing from the
        result. No error of Google is raised.
        """
        ...


class IdentityError(PermanentError):
    """The event was not sent by the replica that it is about."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Contents of a token that Google signed.

    The fields of the VM are None if the token does not name one.
    """

    audience: str
    """Audience that the VM requested the token for."""
    account: str
    """E-mail address of the service account that the VM runs as."""
    issued_at: datetime
    expires_at: datetime
    project: str | None = None
    """Project id of the VM."""
    instance_id: str | None = None
    """The VM's numeric id."""
    instance_name: str | None = None
    """Name of the VM."""
    zone: str | None = None


class Tokens(Protocol):
    """Google's identity tokens."""

    def claims(self, token: str) -> Claims:
        """Verify the signature and the issuer, and return the claims.

        The caller checks the time and the audience.

        Raises IdentityError if Google did not sign the token, and TemporaryError if Google's keys
        are not available, or if the token names an unknown key and the keys were read too recently
        to read them again.
        """
        ...


class UnknownTokenError(Exception):
    """Google does not accept the access token: it is expired, revoked or invalid."""


class CallersProjectError(Exception):
    """Google does not answer, because the API is not enabled in the project that the caller's
    credentials belong to.

    The text says what the caller's administrator must do.
    """


class Access(Protocol):
    """Google's IAM, queried with the caller's own access token.

    Permissions are those on the installation's project, if no other is named. All methods but
    `email` raise UnknownTokenError and CallersProjectError. Every other failure raises
    TemporaryError: a failed query never grants or denies anything.
    """

    def granted_permissions(
        self, token: str, permissions: Sequence[str], project: str = ""
    ) -> frozenset[str]:
        """Return those of `permissions` that the caller has on a project, given by id or number."""
        ...

    def api_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        """Return those of the API's permissions that the caller has in this installation.

        No role on the project grants them (`trainmaster.core.intake.callers`).
        """
        ...

    def may_act_as(self, token: str, account: str) -> bool:
        """Return whether the caller may run VMs as this service account."""
        ...

    def has_full_scope(self, token: str) -> bool:
        """Return whether the token may change things on Google Cloud: it has the scope
        `cloud-platform`.

        Permissions limit the caller; scopes limit what the caller has allowed the holder of this
        token to do.
        """
        ...

    def project_number(self, token: str) -> str:
        """Return Google's number of the project; empty if the caller may not see the project."""
        ...

    def email(self, token: str) -> str | None:
        """Return the caller's e-mail address, or None if the token's scopes do not include it."""
        ...


class Bus(Protocol):
    """The topics of `trainmaster.messaging.topics`.

    Messages may be delivered more than once and in any order.
    """

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Publish one message, and return when it is stored.

        Raises TemporaryError if that is uncertain; the message may then still have been stored.
        """
        ...

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in as few requests as possible.

        Errors are those of `publish`. After an error, some of the messages may have been stored.
        """
        ...


class Clock(Protocol):
    """A function that returns the current time. Tests and the simulator pass their own."""

    def __call__(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...


class JobLog(Protocol):
    """The job's log, where its user reads it."""

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Write the lines. Idempotent: two lines with the same key and time are the same line.

        Raises TemporaryError for every failure, because a job never depends on its log.
        """
        ...


class Suggester(Protocol):
    """The search algorithm of a tuning job. Both methods are deterministic."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        """Return the values of the next trial: one per parameter, in the order of
        `tuning.parameters`.

        Every value is within the range or list of its parameter. The same tuning job and seed give
        the same values. In a finite search space no combination repeats, neither of a past trial
        nor of a running one.
        """
        ...

    def find_unpromising(self, tuning: Tuning) -> Mapping[int, str]:
        """Return the running trials to stop by the rule `tuning.stopping`: their numbers, each with
        the values that were compared, in words. Empty without such a rule.
        """
        ...
