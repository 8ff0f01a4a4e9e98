"""The tokens that a VM gets from its metadata server.

Access tokens are random; the local stack does not check them. Identity tokens are RS256 JSON web
tokens with Google's claims. Google serves their keys at `/oauth2/v1/certs`; here they are at
`/emulator/v1/certs` (X.509, which `google.oauth2.id_token` reads without further packages). The key
is new at each start of the emulator. Source of the claims:
https://cloud.google.com/compute/docs/instances/verifying-instance-identity.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from google.auth import crypt, jwt

from trainmaster_emulators.machines.catalog import stable_id
from trainmaster_emulators.machines.compute_errors import Json

ISSUER: Final = "https://accounts.google.com"
TOKEN_LIFETIME_S: Final = 3600
ACCESS_TOKEN_LIFETIME_S: Final = 3599
_CERTIFICATE_LIFETIME: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class VmIdentity:
    """The service account and the VM in an identity token."""

    email: str
    """The service account's address."""
    project: str
    project_number: int
    zone: str
    instance_id: int
    instance_name: str
    created_at: datetime


class TokenIssuer:
    """Signs tokens with a key of its own, and publishes its certificate."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = secrets.token_hex(20)
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self._signer = crypt.RSASigner.from_string(pem, self._key_id)

    def access_token(self) -> Json:
        token = f"ya29.emulated-{secrets.token_urlsafe(32)}"
        return {
            "access_token": token,
            "expires_in": ACCESS_TOKEN_LIFETIME_S,
            "token_type": "Bearer",
        }

    def identity_token(
        self, identity: VmIdentity, audience: str, *, full: bool, now: datetime
    ) -> str:
        """Return a signed token.

        `full`: include the VM; otherwise the token identifies the service account only.
        """
        issued = int(now.timestamp())
        subject = str(stable_id(identity.email))
        claims: Json = {
            "iss": ISSUER,
            "aud": audience,
            "azp": subject,
            "sub": subject,
            "email": identity.email,
            "email_verified": True,
            "iat": issued,
            "exp": issued + TOKEN_LIFETIME_S,
        }
        if full:
            claims["google"] = {
                "compute_engine": {
                    "project_id": identity.project,
                    "project_number": identity.project_number,
                    "zone": identity.zone,
                    "instance_id": str(identity.instance_id),
                    "instance_name": identity.instance_name,
                    "instance_creation_timestamp": int(identity.created_at.timestamp()),
                }
            }
        token: bytes = jwt.encode(self._signer, claims)
        return token.decode()

    def certificates(self) -> dict[str, str]:
        """Return X.509 certificates in PEM by key id."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainmaster-compute-emulator")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + _CERTIFICATE_LIFETIME)
            .sign(self._key, hashes.SHA256())
        )
        return {self._key_id: certificate.public_bytes(serialization.Encoding.PEM).decode()}
