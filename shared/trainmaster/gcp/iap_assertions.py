"""Assertions of Identity-Aware Proxy (IAP), verified by google-auth with IAP's published keys.

Source: "Securing your app with signed headers", IAP documentation. IAP's header with the e-mail
address alone is not evidence: a client that reaches the console without IAP can send it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.errors import PermanentError
from trainmaster.gcp.public_keys import INVALID, PublicKeys

ISSUER: Final = "https://cloud.google.com/iap"
ALGORITHM: Final = "ES256"
CLOCK_SKEW_S: Final = 30
"""Source: the same page allows 30 seconds for `iat` and `exp`."""


class InvalidAssertionError(PermanentError):
    """IAP did not make the assertion for this service, or it has expired."""


@dataclass(frozen=True, slots=True)
class IapUser:
    """A user that IAP has admitted."""

    subject: str
    """Identifier of the user, which never changes."""
    email: str


class IapAssertions:
    """Verifies assertions for one service. Thread-safe."""

    def __init__(self, audience: str, keys_url: str) -> None:
        """`audience`: that of the Cloud Run service,
        `/projects/NUMBER/locations/REGION/services/NAME`.
        """
        if not audience:
            raise ValueError(
                "the audience is empty, so assertions for other services would be accepted"
            )
        self._audience = audience
        self._keys = PublicKeys(keys_url)

    def user(self, assertion: str) -> IapUser:
        """Return the user of an assertion.

        Raises InvalidAssertionError for a wrong signature, issuer, audience or time, and
        TemporaryError if IAP's keys are not available.
        """
        try:
            payload = self._keys.claims(
                assertion, CLOCK_SKEW_S, audience=self._audience, algorithm=ALGORITHM
            )
            if payload["iss"] != ISSUER:
                raise ValueError(f"its issuer is {payload['iss']!r}, not {ISSUER}")
            return IapUser(_text(payload["sub"]), _text(payload["email"]))
        except INVALID as error:
            raise InvalidAssertionError(
                f"the assertion of Identity-Aware Proxy is not valid: {error}"
            ) from None


def _text(claim: object) -> str:
    if not isinstance(claim, str) or not claim:
        raise ValueError("it names no user")
    return claim
