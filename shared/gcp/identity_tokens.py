"""Identity tokens of VMs, verified by google-auth with Google's published keys.

Source: "Verify the identity of instances", Compute Engine documentation; keys at /oauth2/v1/certs as X.509 by key id.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from cachetools import TLRUCache
from google.auth import exceptions, jwt
from google.auth.transport.requests import Request

from shared.errors import TemporaryError
from shared.ports import Claims, IdentityError

ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
TIMEOUT_S: Final = 10.0
KEYS_VALID_S: Final = 3600.0
"""Used if the response does not say how long its keys are valid."""
REFETCH_INTERVAL_S: Final = 60.0
"""How often an unknown key id may cause a new request: forged tokens must not cause a flood of requests."""
EXPIRY_SLACK_S: Final = 8 * 24 * 3600
"""google-auth compares a token's expiry with the current time. `shared.flows.authenticate` compares it with the time
at which the event was published, so here it only has to be younger than any delivery: Pub/Sub keeps messages a week."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """Certificates by key id."""

    certificates: Mapping[str, str]
    valid_s: float
    fetched_at: float


class IdentityTokens:
    """See `shared.ports.Tokens`. Thread-safe. `clock` is monotonic, in seconds."""

    def __init__(self, certificates_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = certificates_url
        self._clock = clock
        self._lock = threading.Lock()
        self._cache: TLRUCache[str, _Keys] = TLRUCache(
            maxsize=1, ttu=lambda _url, keys, now: now + keys.valid_s, timer=clock
        )
        self._request = Request()

    def claims(self, token: str) -> Claims:
        try:
            key_id = str(jwt.decode_header(token).get("kid"))
            payload: Mapping[str, Any] = jwt.decode(
                token, certs=self._certificates(key_id), clock_skew_in_seconds=EXPIRY_SLACK_S
            )
            return _claims(payload)
        except (exceptions.GoogleAuthError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise IdentityError(f"identity: the token is not signed by Google: {error}") from None

    def _certificates(self, key_id: str) -> Mapping[str, str]:
        """Return Google's certificates, which are fetched if the known ones have expired or lack this key.

        A key is foreign only if the keys of this moment lack it. Raises TemporaryError for an unknown key that it is
        too early to look for: Google may have published it since the last request.
        """
        with self._lock:
            keys = self._cache.get(self._url)
            if keys is not None and key_id in keys.certificates:
                return keys.certificates
            if keys is not None and self._clock() - keys.fetched_at < REFETCH_INTERVAL_S:
                raise TemporaryError(
                    "identity: the token is signed with a key that Google had not published a minute ago"
                )
            keys = self._fetch()
            self._cache[self._url] = keys
            return keys.certificates

    def _fetch(self) -> _Keys:
        now = self._clock()
        try:
            response = self._request(self._url, timeout=TIMEOUT_S)
            if response.status != HTTPStatus.OK:
                raise TemporaryError(f"cannot fetch the keys of identity tokens: HTTP {response.status}")
            certificates: Mapping[str, str] = json.loads(response.data)
        except (exceptions.TransportError, ValueError) as error:
            raise TemporaryError(f"cannot fetch the keys of identity tokens: {error}") from error
        max_age = re.search(r"max-age=(\d+)", response.headers.get("Cache-Control", ""))
        return _Keys(certificates, float(max_age[1]) if max_age else KEYS_VALID_S, now)


def _claims(payload: Mapping[str, Any]) -> Claims:
    if payload["iss"] not in ISSUERS or not payload.get("email_verified"):
        raise ValueError(f"issued by {payload['iss']!r}")
    vm = payload.get("google", {}).get("compute_engine", {})
    return Claims(
        audience=str(payload["aud"]),
        account=str(payload["email"]),
        issued_at=datetime.fromtimestamp(payload["iat"], UTC),
        expires_at=datetime.fromtimestamp(payload["exp"], UTC),
        project=vm.get("project_id"),
        instance_id=vm.get("instance_id"),
        instance_name=vm.get("instance_name"),
        zone=vm.get("zone"),
    )
