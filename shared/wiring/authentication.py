"""Authentication of senders, with Google's keys for identity tokens and the installation's service account."""

from __future__ import annotations

from functools import cache

from shared.flows.authenticate import AuthDeps
from shared.gcp.identity_tokens import IdentityTokens
from shared.ports import Tokens
from shared.settings import settings
from shared.wiring import core_services


@cache
def tokens() -> Tokens:
    return IdentityTokens(settings().identity_keys)


def auth_deps() -> AuthDeps:
    values = settings()
    return AuthDeps(tokens(), core_services.deps().store, values.project, values.worker_service_account)
