"""Verification of the identity tokens that VMs send with their events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from trainmaster.errors import PermanentError


class IdentityError(PermanentError):
    """The event was not sent by the replica that it is about."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Contents of a token that Google signed. The fields of the VM are None if the token does not name one."""

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
        """Verify the signature and the issuer, and return the claims. The caller checks the time and the audience.

        Raises IdentityError if Google did not sign the token, and TemporaryError if Google's keys are not available, or
        if the token names an unknown key and the keys were read too recently to read them again.
        """
        ...
