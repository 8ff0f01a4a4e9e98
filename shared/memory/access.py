"""The Access port in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from shared.ports import UnknownTokenError


@dataclass
class MemoryAccess:
    """See `shared.ports.Access`. Every mapping is keyed by access token."""

    tokens: Mapping[str, AbstractSet[str]]
    """The permissions of each valid token. Any other token is unknown."""
    accounts: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """The service accounts that each token may act as."""
    calls: int = field(default=0)
    """How often this adapter was called."""
    emails: Mapping[str, str] = field(default_factory=dict)
    number: str = "123456789012"
    """The project's number."""

    def granted_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        self.calls += 1
        if token not in self.tokens:
            raise UnknownTokenError
        return frozenset(self.tokens[token]) & frozenset(permissions)

    def may_act_as(self, token: str, account: str) -> bool:
        self.granted_permissions(token, ())
        return account in self.accounts.get(token, ())

    def project_number(self, token: str) -> str:
        self.granted_permissions(token, ())
        return self.number

    def email(self, token: str) -> str | None:
        self.calls += 1
        return self.emails.get(token)
