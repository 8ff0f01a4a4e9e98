"""Assertions as Identity-Aware Proxy (IAP) signs them, for tests and measurements of the hosted
console.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from http.server import ThreadingHTTPServer
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.auth import crypt, jwt

from trainmaster_emulators.services.http_servers import key_server

ISSUER: Final = "https://cloud.google.com/iap"
LIFETIME_S: Final = 600
"""Source: "Securing your app with signed headers", IAP documentation: about ten minutes."""


class IapIssuer:
    """A signing key like IAP's, and the assertions signed with it."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_id = secrets.token_hex(3)
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self._signer = crypt.ES256Signer.from_string(pem, self._key_id)

    def assertion(self, email: str, audience: str, now: datetime, **claims: Any) -> str:
        """Return a signed assertion. `claims` override its default claims."""
        issued = int(now.timestamp())
        payload = {
            "iss": ISSUER,
            "aud": audience,
            "sub": f"accounts.google.com:{email.partition('@')[0]}",
            "email": email,
            "iat": issued,
            "exp": issued + LIFETIME_S,
            **claims,
        }
        return str(jwt.encode(self._signer, payload).decode())

    def public_keys(self) -> dict[str, str]:
        """Return the public key as PEM, by its id, as IAP publishes it."""
        pem = self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return {self._key_id: pem.decode()}

    def listen(self, port: int = 0) -> ThreadingHTTPServer:
        """Return a server on loopback that publishes the key."""
        # A lambda, because a test replaces the method.
        return key_server(lambda: self.public_keys(), port)  # noqa: PLW0108
