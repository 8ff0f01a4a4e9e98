"""Access in memory: tokens and what they may. A token that is not there is one that Google does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from shared.ports import UnknownTokenError


@dataclass
class MemoryAccess:
    """See `shared.ports.Access`. `accounts`: which service accounts a token may use; `emails`: whose it is; `asked`:
    how many questions."""

    tokens: Mapping[str, AbstractSet[str]]
    accounts: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    asked: int = field(default=0)
    emails: Mapping[str, str] = field(default_factory=dict)
    number: str = "123456789012"

    def granted(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        self.asked += 1
        if token not in self.tokens:
            raise UnknownTokenError
        return frozenset(self.tokens[token]) & frozenset(permissions)

    def may_act_as(self, token: str, account: str) -> bool:
        self.granted(token, ())
        return account in self.accounts.get(token, ())

    def project_number(self, token: str) -> str:
        self.granted(token, ())
        return self.number

    def email(self, token: str) -> str | None:
        self.asked += 1
        return self.emails.get(token)
