"""Permissions of the HTTP API's callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class UnknownTokenError(Exception):
    """Google does not accept the access token: it is expired, revoked or invalid."""


class Access(Protocol):
    """The project's IAM, queried with the caller's own access token.

    All methods but `email` raise UnknownTokenError. Every other failure raises TemporaryError: a failed query never
    grants or denies anything.
    """

    def granted_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        """Return those of `permissions` that the caller has on the project."""
        ...

    def may_act_as(self, token: str, account: str) -> bool:
        """Return whether the caller may run VMs as this service account."""
        ...

    def project_number(self, token: str) -> str:
        """Return Google's number of the project. The caller must be allowed to see the project."""
        ...

    def email(self, token: str) -> str | None:
        """Return the caller's e-mail address, or None if the token's scopes do not include it."""
        ...
