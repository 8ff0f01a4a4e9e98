"""Cached answers of Google's IAM, so that not every request of a client causes a query.

Permissions are kept for a minute, and only granted ones: a new permission works at once, and a
revoked one for at most a minute longer. A token that Google does not know is remembered for some
seconds. Scopes, e-mail addresses and the project's number never change, so they are kept as long as
there is space. Entries are keyed by a hash of the access token, in this process only. A token
itself is never stored or logged.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from cachetools import LRUCache, TTLCache, cachedmethod

from trainmaster.ports import Access, UnknownTokenError

GRANTED_S: Final = 60.0
"""How long a granted permission is kept."""
UNKNOWN_S: Final = 10.0
"""How long an unknown token is remembered, although it never becomes valid.

The time is short, so that a wrong answer of Google's does not lock a user out for long.
"""
ENTRIES_MAX: Final = 1_000
"""Entries of each cache."""


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _key(_: object, token: str) -> str:
    return _hash(token)


class CachedAccess:
    """An `Access` with the answers of another one; its methods are those of `ports.Access`.

    Thread-safe. `clock` is monotonic, in seconds.
    """

    def __init__(self, access: Access, clock: Callable[[], float]) -> None:
        self.access = access
        self._granted: TTLCache[tuple[str, str], bool] = TTLCache(
            ENTRIES_MAX, GRANTED_S, timer=clock
        )
        self._unknown: TTLCache[str, bool] = TTLCache(ENTRIES_MAX, UNKNOWN_S, timer=clock)
        self._full_scopes: LRUCache[str, bool] = LRUCache(ENTRIES_MAX)
        self._emails: LRUCache[str, str | None] = LRUCache(ENTRIES_MAX)
        self._number = ""  # of the project; empty: not known yet
        self._lock = threading.Lock()

    def granted_permissions(
        self, token: str, permissions: Sequence[str], project: str = ""
    ) -> frozenset[str]:
        """Return those of `permissions` that the caller has on a project, given by id or number."""

        def ask(names: Sequence[str]) -> frozenset[str]:
            return self.access.granted_permissions(token, names, project)

        return self._granted_of(token, permissions, f"project {project}", ask)

    def api_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        """Return those of the API's permissions that the caller has in this installation."""

        def ask(names: Sequence[str]) -> frozenset[str]:
            return self.access.api_permissions(token, names)

        return self._granted_of(token, permissions, "API", ask)

    def _granted_of(
        self,
        token: str,
        permissions: Sequence[str],
        place: str,
        ask: Callable[[Sequence[str]], frozenset[str]],
    ) -> frozenset[str]:
        """Return those of `permissions` that the caller has in `place`.

        `ask` queries Google about the permissions that are not cached. Raises UnknownTokenError
        without a query for a token that was unknown a moment ago.
        """
        cached = frozenset(
            name for name in permissions if self._is_granted(token, f"{place}: {name}")
        )
        others = [permission for permission in permissions if permission not in cached]
        if not others:
            return cached
        key = _hash(token)
        with self._lock:
            if key in self._unknown:
                raise UnknownTokenError
        try:
            granted = ask(others)
        except UnknownTokenError:
            with self._lock:
                self._unknown[key] = True
            raise
        for permission in granted:
            self._keep(token, f"{place}: {permission}")
        return granted | cached

    def may_act_as(self, token: str, account: str) -> bool:
        """Return whether the caller may run VMs as this service account."""
        permission = f"act as {account}"
        if not self._is_granted(token, permission):
            if not self.access.may_act_as(token, account):
                return False
            self._keep(token, permission)
        return True

    @cachedmethod(attrgetter("_full_scopes"), key=_key, lock=attrgetter("_lock"))
    def has_full_scope(self, token: str) -> bool:
        """Return whether the token may change things on Google Cloud: it has the scope
        `cloud-platform`.
        """
        return self.access.has_full_scope(token)

    def project_number(self, token: str) -> str:
        """Return the project's number.

        Every caller gets the cached one: the route checks who may see the project.
        """
        if not self._number:
            self._number = self.access.project_number(token)
        return self._number

    @cachedmethod(attrgetter("_emails"), key=_key, lock=attrgetter("_lock"))
    def email(self, token: str) -> str | None:
        """Return the caller's e-mail address, or None if the token's scopes do not include it."""
        return self.access.email(token)

    def _is_granted(self, token: str, permission: str) -> bool:
        with self._lock:
            return (_hash(token), permission) in self._granted

    def _keep(self, token: str, permission: str) -> None:
        with self._lock:
            self._granted[_hash(token), permission] = True
