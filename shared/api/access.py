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
        who = hashlib.sha256(token.encode()).hexdigest()
        now = self.seconds()
        with self._lock:
            known = {each for each in permissions if self._known.get((who, each), now) > now}
        asked = [each for each in permissions if each not in known]
        if not asked:
            return frozenset(known)
        granted = self.access.granted(token, asked)
        with self._lock:
            for each in granted:
                self._known[who, each] = now + REMEMBERED_S
                self._known.move_to_end((who, each))
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return granted | known
