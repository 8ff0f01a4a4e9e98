"""A VM is being shut down or is gone: replace it."""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import maintenance as flow
from trainmaster.messaging import push
from trainmaster.wiring.authentication import auth_deps
from trainmaster.wiring.core_services import bus, deps


@functions_framework.http
def maintenance(request: Request) -> push.Response:
    return push.serve(
        request, "maintenance", lambda message: flow.on_message(message, deps(), auth_deps()), bus
    )
