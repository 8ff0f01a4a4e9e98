"""Permissions of the HTTP API's callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class UnknownTokenError(Exception):
    """Google does not accept the access token: it is expired, revoked or invalid."""


class CallersProjectError(Exception):
    """Google does not answer, because the API is not enabled in the project that the caller's credentials belong to.

    The text says what the caller's administrator must do.
    """


class Access(Protocol):
    """The project's IAM, queried with the caller's own access token.

    Permissions are those on the installation's project, if no other is named. All methods but `email` raise
    UnknownTokenError and CallersProjectError. Every other failure raises TemporaryError: a failed query never grants or
    denies anything.
    """

    def granted_permissions(self, token: str, permissions: Sequence[str], project: str = "") -> frozenset[str]:
        """Return those of `permissions` that the caller has on a project, given by id or number."""
        ...

    def may_act_as(self, token: str, account: str) -> bool:
        """Return whether the caller may run VMs as this service account."""
        ...

    def has_full_scope(self, token: str) -> bool:
        """Return whether the token may change things on Google Cloud: it has the scope `cloud-platform`.

        Permissions limit the caller; scopes limit what the caller has allowed the holder of this token to do.
        """
        ...

    def project_number(self, token: str) -> str:
        """Return Google's number of the project. The caller must be allowed to see the project."""
        ...

    def email(self, token: str) -> str | None:
        """Return the caller's e-mail address, or None if the token's scopes do not include it."""
        ...
