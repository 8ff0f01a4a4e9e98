"""The Access port in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from trainmaster.ports import UnknownTokenError


@dataclass
class MemoryAccess:
    """Adapter of `trainmaster.ports.Access` (what callers of the API may do) for tests of the API.

    Every mapping is keyed by access token. Every method raises UnknownTokenError for a token that
    `tokens` lacks, except `has_full_scope` and `email`.
    """

    tokens: Mapping[str, AbstractSet[str]]
    """The permissions of each valid token, of the API and on the project.

    Any other token is unknown.
    """
    accounts: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """The service accounts that each token may act as."""
    calls: int = field(default=0)
    """Calls of methods so far."""
    emails: Mapping[str, str] = field(default_factory=dict)
    """The e-mail address of each token's user; a token may have none."""
    number: str = "123456789012"
    """The project's number."""

    elsewhere: Mapping[tuple[str, str], AbstractSet[str]] = field(default_factory=dict)
    """The permissions of a token on another project."""
    read_only: AbstractSet[str] = frozenset()
    """Tokens without the scope to change anything."""

    def granted_permissions(
        self, token: str, permissions: Sequence[str], project: str = ""
    ) -> frozenset[str]:
        """Return which of these permissions the token has on the project; `project` empty: this
        one.
        """
        self.calls += 1
        if token not in self.tokens:
            raise UnknownTokenError
        granted = self.tokens[token]
        if project:
            granted = self.elsewhere.get((token, project), frozenset())
        return frozenset(granted) & frozenset(permissions)

    def api_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        """Return which of these permissions of the API the token has."""
        return self.granted_permissions(token, permissions)

    def has_full_scope(self, token: str) -> bool:
        """Return whether the token may change anything."""
        self.calls += 1
        return token in self.tokens and token not in self.read_only

    def may_act_as(self, token: str, account: str) -> bool:
        """Return whether the token's user may run programs as this service account."""
        self.granted_permissions(token, permissions=())
        return account in self.accounts.get(token, ())

    def project_number(self, token: str) -> str:
        """Return the number of the project."""
        self.granted_permissions(token, permissions=())
        return self.number

    def email(self, token: str) -> str | None:
        """Return the e-mail address of the token's user; None: unknown."""
        self.calls += 1
        return self.emails.get(token)
