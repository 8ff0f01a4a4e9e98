"""The Access port in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from trainmaster.ports import UnknownTokenError


@dataclass
class MemoryAccess:
    """See `trainmaster.ports.Access`. Every mapping is keyed by access token."""

    tokens: Mapping[str, AbstractSet[str]]
    """The permissions of each valid token, of the API and on the project.

    Any other token is unknown.
    """
    accounts: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """The service accounts that each token may act as."""
    calls: int = field(default=0)
    """How often this adapter was called."""
    emails: Mapping[str, str] = field(default_factory=dict)
    number: str = "123456789012"
    """The project's number."""

    elsewhere: Mapping[tuple[str, str], AbstractSet[str]] = field(default_factory=dict)
    """The permissions of a token on another project."""
    read_only: AbstractSet[str] = frozenset()
    """Tokens without the scope to change anything."""

    def granted_permissions(
        self, token: str, permissions: Sequence[str], project: str = ""
    ) -> frozenset[str]:
        self.calls += 1
        if token not in self.tokens:
            raise UnknownTokenError
        granted = self.tokens[token]
        if project:
            granted = self.elsewhere.get((token, project), frozenset())
        return frozenset(granted) & frozenset(permissions)

    def api_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        return self.granted_permissions(token, permissions)

    def has_full_scope(self, token: str) -> bool:
        self.calls += 1
        return token in self.tokens and token not in self.read_only

    def may_act_as(self, token: str, account: str) -> bool:
        self.granted_permissions(token, ())
        return account in self.accounts.get(token, ())

    def project_number(self, token: str) -> str:
        self.granted_permissions(token, ())
        return self.number

    def email(self, token: str) -> str | None:
        self.calls += 1
        return self.emails.get(token)
