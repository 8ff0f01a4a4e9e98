"""Who may do what: remembered for a minute, so that a client that polls does not ask Google each time. What never
changes (whose token it is, the project's number) is remembered for good.

Remembered by a hash of the token, in this process only; a token is never stored or logged. What a minute may hide is a
permission just taken away; one just given is seen at once, because refusals are not remembered.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from shared.ports import Access

REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 1_000

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass
class RememberedAccess:
    """See `shared.ports.Access`. `seconds` is a clock that never goes back. Thread-safe."""

    access: Access
    seconds: Callable[[], float]
    _known: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)
    _emails: OrderedDict[str, str | None] = field(default_factory=OrderedDict)
    _number: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def granted(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        known = frozenset(each for each in permissions if self._knows(token, each))
        asked = [each for each in permissions if each not in known]
        if not asked:
            return known
        granted = self.access.granted(token, asked)
        for each in granted:
            self._remember(token, each)
        return granted | known

    def may_act_as(self, token: str, account: str) -> bool:
        as_account = f"as {account}"
        if not self._knows(token, as_account):
            if not self.access.may_act_as(token, account):
                return False
            self._remember(token, as_account)
        return True

    def project_number(self, token: str) -> str:
        """Whether the bearer may see it is asked as any permission."""
        if not self._number:
            self._number = self.access.project_number(token)
        return self._number

    def email(self, token: str) -> str | None:
        key = _hashed(token)
        with self._lock:
            if key in self._emails:
                return self._emails[key]
        email = self.access.email(token)
        with self._lock:
            _keep(self._emails, key, email)
        return email

    def _knows(self, token: str, right: str) -> bool:
        now = self.seconds()
        with self._lock:
            return self._known.get((_hashed(token), right), now) > now

    def _remember(self, token: str, right: str) -> None:
        key = (_hashed(token), right)
        with self._lock:
            _keep(self._known, key, self.seconds() + REMEMBERED_S)


def _keep(remembered: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    remembered[key] = value
    remembered.move_to_end(key)
    while len(remembered) > REMEMBERED_MAX:
        remembered.popitem(last=False)


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
