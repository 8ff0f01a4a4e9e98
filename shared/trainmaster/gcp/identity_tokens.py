"""Identity tokens of VMs, verified by google-auth with Google's published keys.

Source: "Verify the identity of instances", Compute Engine documentation; keys at /oauth2/v1/certs
as X.509 by key id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from trainmaster.gcp.public_keys import INVALID, PublicKeys
from trainmaster.ports import Claims, IdentityError

ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
EXPIRY_SLACK_S: Final = 8 * 24 * 3600
"""google-auth compares a token's expiry with the current time.

`flows.authenticate` compares it with the time at which the event was published, so this module also
accepts tokens that expired while the event waited for its delivery. Pub/Sub keeps messages for a
week.
"""


class IdentityTokens:
    """Verifies identity tokens by Google's public keys. Thread-safe.

    Adapter of `trainmaster.ports.Tokens`. `clock` is monotonic, in seconds.
    """

    def __init__(self, certificates_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = PublicKeys(certificates_url, clock)

    def claims(self, token: str) -> Claims:
        """Verify the signature and the issuer, and return the claims.

        Raises IdentityError if Google did not sign the token, and TemporaryError if Google's keys
        are not available, or if the token names an unknown key and the keys were read too recently
        to read them again.
        """
        try:
            return _claims(self._keys.claims(token, EXPIRY_SLACK_S))
        except INVALID as error:
            raise IdentityError(f"identity: the token is not signed by Google: {error}") from None


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
