"""A VM is being shut down or is gone: replace it."""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import maintenance as flow
from trainmaster.messaging import push
from trainmaster.messaging.authenticate import authenticate_loss
from trainmaster.messaging.google_events import decode_maintenance
from trainmaster.wiring.authentication import auth_deps
from trainmaster.wiring.core_services import bus, deps


@functions_framework.http
def maintenance(request: Request) -> push.Response:
    return push.serve(request, "maintenance", _handle, bus)


def _handle(message: push.Message) -> None:
    event = decode_maintenance(message.data, message.published_at)
    authenticated = authenticate_loss(event, message, auth_deps())
    flow.handle(event, deps(), authenticated.loaded)
