"""Who may do what: remembered for a minute, so that a client that polls does not ask Google each time.

Remembered by a hash of the token, in this process only; a token is never stored or logged. What a minute may hide is a
permission just taken away; one just given is seen at once, because refusals are not remembered.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.ports import Access

REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 1_000


@dataclass
class RememberedAccess:
    """See `shared.ports.Access`. `seconds` is a clock that never goes back. Thread-safe."""

    access: Access
    seconds: Callable[[], float]
    _known: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)
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

    def _knows(self, token: str, right: str) -> bool:
        now = self.seconds()
        with self._lock:
            return self._known.get((_hashed(token), right), now) > now

    def _remember(self, token: str, right: str) -> None:
        key = (_hashed(token), right)
        with self._lock:
            self._known[key] = self.seconds() + REMEMBERED_S
            self._known.move_to_end(key)
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
