"""Authentication of senders, with Google's keys for identity tokens and the installation's service
account.

The functions that receive messages of agents (`vm_ready`, `replica_exit`, `maintenance`) call
`auth_deps`: a message is accepted if its identity token shows that it comes from the VM of the
replica.
"""

from __future__ import annotations

from functools import cache

from trainmaster.gcp.identity_tokens import IdentityTokens
from trainmaster.messaging.authenticate import AuthDeps
from trainmaster.ports import Tokens
from trainmaster.settings import settings
from trainmaster.wiring import core_services


@cache
def tokens() -> Tokens:
    """Return what checks identity tokens, with the keys at the address that the settings name."""
    return IdentityTokens(settings().identity_keys)


def auth_deps() -> AuthDeps:
    """Return what the authentication of events uses."""
    values = settings()
    return AuthDeps(
        tokens=tokens(),
        store=core_services.deps().store,
        project=values.project,
        account=values.worker_service_account,
    )
