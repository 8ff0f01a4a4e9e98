"""Google's keys: when they are fetched, and what happens while they are not available."""

from __future__ import annotations

import pytest
from google.auth.exceptions import TransportError

from tests.unit.functions.senders import ACCOUNT, NOW, Sender
from trainmaster.core.model.replica import ReplicaState
from trainmaster.errors import TemporaryError
from trainmaster.gcp.identity_tokens import IdentityTokens
from trainmaster.ports import IdentityError
from trainmaster.settings import settings
from trainmaster.wiring import authentication
from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity


def test_event_is_redelivered_while_googles_keys_are_not_available(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_IDENTITY_KEYS", "http://127.0.0.1:9/certs")
    settings.cache_clear()
    authentication.tokens.cache_clear()
    assert sender.send(sender.token()) == 503
    assert sender.reasons() == []


def test_unknown_key_id_fetches_keys_at_most_once_a_minute(
    keys: str, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    tokens = IdentityTokens(keys, clock=lambda: now[0])
    vm = VmIdentity(
        ACCOUNT,
        "my-project",
        project_number=1,
        zone="z",
        instance_id=1,
        instance_name="n",
        created_at=NOW,
    )
    assert tokens.claims(issuer.identity_token(vm, "a", full=True, now=NOW)).audience == "a"

    def fail_to_fetch(*_: object, **__: object) -> None:
        raise TransportError("unreachable")

    with monkeypatch.context() as patch:
        patch.setattr(tokens._keys, "_request", fail_to_fetch)
        with pytest.raises(TemporaryError, match="had not published a minute ago"):
            tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))
        now[0] = 61.0
        with pytest.raises(TemporaryError, match="unreachable"):
            tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))
    with pytest.raises(IdentityError):
        tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))


def test_event_signed_with_a_key_of_the_last_minute_is_redelivered_and_then_handled(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google begins to sign with a new key just after the function fetched the keys."""
    tokens = authentication.tokens()
    assert isinstance(tokens, IdentityTokens)
    now = [0.0]
    monkeypatch.setattr(tokens._keys, "_clock", lambda: now[0])
    tokens.claims(sender.token())
    rotated = TokenIssuer()
    published = {**sender.issuer.certificates(), **rotated.certificates()}
    monkeypatch.setattr(sender.issuer, "certificates", lambda: published)
    assert sender.send(sender.token(issuer=rotated)) == 503
    now[0] = 61.0
    assert sender.send(sender.token(issuer=rotated)) == 204
    assert (sender.state, sender.reasons()) == (ReplicaState.RUNNING, [])
