"""The entrance for tokens of VMs and of Identity-Aware Proxy."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.auth import crypt

from tests.fuzz.entrance import Entrance, Entrances, text_of
from trainmaster.errors import PermanentError
from trainmaster.gcp.iap_assertions import IapAssertions
from trainmaster.gcp.identity_tokens import IdentityTokens
from trainmaster.gcp.project_access import _signed_scopes
from trainmaster.gcp.public_keys import PublicKeys

_AUDIENCE: Final = "/projects/1/x"
"""Whom the tokens are for."""
_BYTES_MAX: Final = 64 << 10
"""Servers accept no longer headers, and Pub/Sub no longer attributes than 1 KiB."""
_JWT_DOTS: Final = 2
_TIMES: Final = {"iat": 1, "exp": 4_102_444_800}
_TOKEN: Final = (
    base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"1"}')
    + b"."
    + base64.urlsafe_b64encode(b'{"scope":"x"}')
    + b".c2ln"
)
_VM_CLAIMS: Final = {
    **_TIMES,
    "iss": "https://accounts.google.com",
    "aud": _AUDIENCE,
    "email": "a@p.iam",
    "email_verified": True,
    "google": {"compute_engine": {"project_id": "p", "instance_id": "1", "zone": "z"}},
}
_USER_CLAIMS: Final = {
    **_TIMES,
    "iss": "https://cloud.google.com/iap",
    "aud": _AUDIENCE,
    "sub": "s",
    "email": "anna@example.com",
}


def _signed() -> Entrance:
    """Read a token of a stranger, and the same bytes as claims of a token that Google signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = crypt.ES256Signer(key, "1")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    identity = IdentityTokens("https://keys.invalid")
    assertions = IapAssertions(_AUDIENCE, "https://keys.invalid")
    for keys in (identity._keys, assertions._keys):
        setattr(keys, PublicKeys.with_key.__name__, lambda _: {"1": public.decode()})
    header = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"1"}')

    def read(data: bytes) -> None:
        data = data[:_BYTES_MAX]
        text = text_of(data, _BYTES_MAX)
        _signed_scopes(text)
        for refuse in (identity.claims, assertions.user):
            with pytest.raises(PermanentError) as refused:
                refuse(text)
            assert len(str(refused.value)) < 1000, "it quotes the token"
        if text.count(".") == _JWT_DOTS:
            return  # no claims, but a whole token
        message = header + b"." + base64.urlsafe_b64encode(data)
        signature = base64.urlsafe_b64encode(signer.sign(message))
        verify: Callable[[str], object] = identity.claims
        if "/iap" in text:
            verify = assertions.user
        verify((message + b"." + signature).decode())

    return Entrance(read, [_TOKEN, _VM_CLAIMS, _USER_CLAIMS])


TOKENS: Final[Entrances] = {"token": _signed}
