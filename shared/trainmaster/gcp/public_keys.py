"""Google's published keys, fetched once and kept for as long as Google says."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from cachetools import TLRUCache
from google.auth import exceptions, jwt
from google.auth.transport.requests import Request

from trainmaster.errors import TemporaryError

TIMEOUT_S: Final = 10.0
KEYS_VALID_S: Final = 3600.0
"""Used if the response does not state how long its keys are valid."""
INVALID: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Built-in errors that google-auth and our checks raise for texts that are not tokens. google-auth
raises errors of its own, too.
"""
REFETCH_INTERVAL_S: Final = 60.0
"""Shortest time between two requests because of unknown key ids: forged tokens must not cause a
flood of requests.
"""


@dataclass(frozen=True, slots=True)
class _Keys:
    """Certificates or public keys by key id."""

    by_id: Mapping[str, str]
    valid_s: float
    fetched_at: float


class PublicKeys:
    """The keys at one address, as PEM by key id. Thread-safe. `clock` is monotonic, in seconds."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._cache: TLRUCache[str, _Keys] = TLRUCache(
            maxsize=1, ttu=lambda _url, keys, now: now + keys.valid_s, timer=clock
        )
        self._request = Request()

    def claims(
        self, token: str, skew_s: int, *, audience: str | None = None, algorithm: str = ""
    ) -> Mapping[str, Any]:
        """Return the claims of a token that one of the keys has signed. Empty `algorithm`: any.

        Raises ValueError, whose text does not contain the token, for any other token. Other errors
        are INVALID, too.
        """
        try:
            header = jwt.decode_header(token)
            if algorithm and header.get("alg") != algorithm:
                raise ValueError(f"its algorithm is {header.get('alg')!r}, not {algorithm}")
            keys = self.with_key(str(header.get("kid")))
            claims: Mapping[str, Any] = jwt.decode(
                token, keys, audience=audience, clock_skew_in_seconds=skew_s
            )
        except exceptions.MalformedError:  # its text contains the token
            raise ValueError("it is malformed, or its key is unknown") from None
        except exceptions.GoogleAuthError as error:
            raise ValueError(str(error)) from None
        return claims

    def with_key(self, key_id: str) -> Mapping[str, str]:
        """Return Google's keys, which are fetched if the known ones have expired or lack this key.

        The result lacks the key only if Google does not publish it now. Raises TemporaryError for
        an unknown key if the last request is less than `REFETCH_INTERVAL_S` ago: Google may have
        published the key since.
        """
        with self._lock:
            keys = self._cache.get(self._url)
            if keys is not None and key_id in keys.by_id:
                return keys.by_id
            if keys is not None and self._clock() - keys.fetched_at < REFETCH_INTERVAL_S:
                raise TemporaryError(
                    "identity: the token is signed with a key that Google had not published a"
                    " minute ago"
                )
            keys = self._fetch()
            self._cache[self._url] = keys
            return keys.by_id

    def _fetch(self) -> _Keys:
        now = self._clock()
        try:
            response = self._request(self._url, timeout=TIMEOUT_S)
            if response.status != HTTPStatus.OK:
                raise TemporaryError(
                    f"cannot fetch the keys of identity tokens: HTTP {response.status}"
                )
            keys: Mapping[str, str] = json.loads(response.data)
        except (exceptions.TransportError, ValueError) as error:
            raise TemporaryError(f"cannot fetch the keys of identity tokens: {error}") from error
        max_age = re.search(r"max-age=(\d+)", response.headers.get("Cache-Control", ""))
        return _Keys(keys, float(max_age[1]) if max_age else KEYS_VALID_S, now)
