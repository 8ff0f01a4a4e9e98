"""Identity tokens of VMs, verified with Google's published keys, which are kept as long as Google says.

Source: "Verify the identity of instances", Compute Engine documentation; keys at /oauth2/v1/certs as X.509 by key id.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import urllib3

from shared.errors import TemporaryError
from shared.flows.sender_identity import Claims, IdentityError

ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
TIMEOUT_S: Final = 10.0
KEEP_S: Final = 3600.0
"""Where the answer does not say how long its keys are good."""
ASK_AGAIN_S: Final = 60.0
"""How soon an unknown key id may make us ask again: a stranger's tokens are no reason for a flood of requests."""
LATE_S: Final = 8 * 24 * 3600
"""Whether the token was valid when the event was told is `shared.flows.sender_identity`'s to say; the library would compare it with
now. An event is delivered within a week, or never: Pub/Sub's longest retention here."""


class IdentityTokens:
    """See `shared.flows.sender_identity.Tokens`. Thread-safe. `clock` is monotonic, in seconds."""

    def __init__(self, certificates_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = certificates_url
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Mapping[str, str] = {}
        self._good_until = self._asked_at = float("-inf")

    def claims(self, token: str) -> Claims:
        from google.auth import exceptions, jwt  # brings cryptography: where no token comes, none is read

        try:
            key_id = str(jwt.decode_header(token).get("kid"))
            said: Mapping[str, Any] = jwt.decode(token, certs=self._certificates(key_id), clock_skew_in_seconds=LATE_S)
            return _claims(said)
        except (exceptions.GoogleAuthError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise IdentityError(f"identity: no token that Google signed: {error}") from None

    def _certificates(self, key_id: str) -> Mapping[str, str]:
        with self._lock:
            now = self._clock()
            is_unknown = key_id not in self._keys and now - self._asked_at >= ASK_AGAIN_S
            if now >= self._good_until or is_unknown:
                self._asked_at = now
                self._keys, good_s = _fetch(self._url)
                self._good_until = now + good_s
            return self._keys


def _fetch(url: str) -> tuple[Mapping[str, str], float]:
    try:
        answer = urllib3.request("GET", url, timeout=TIMEOUT_S)
        keys: Mapping[str, str] = answer.json()
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise TemporaryError(f"the keys of identity tokens cannot be had: {error}") from error
    if answer.status != HTTPStatus.OK:
        raise TemporaryError(f"the keys of identity tokens cannot be had: HTTP {answer.status}")
    age = re.search(r"max-age=(\d+)", answer.headers.get("Cache-Control", ""))
    return keys, float(age[1]) if age else KEEP_S


def _claims(said: Mapping[str, Any]) -> Claims:
    if said["iss"] not in ISSUERS or not said.get("email_verified"):
        raise ValueError(f"issued by {said['iss']!r}")
    vm = said.get("google", {}).get("compute_engine", {})
    return Claims(
        audience=str(said["aud"]),
        account=str(said["email"]),
        issued_at=datetime.fromtimestamp(said["iat"], UTC),
        expires_at=datetime.fromtimestamp(said["exp"], UTC),
        project=vm.get("project_id"),
        instance_id=vm.get("instance_id"),
        instance_name=vm.get("instance_name"),
    )
