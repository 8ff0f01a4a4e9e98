"""A replica's VM is set up and is about to start the program."""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import vm_ready as flow
from trainmaster.messaging import push
from trainmaster.wiring.authentication import auth_deps
from trainmaster.wiring.core_services import bus, deps


@functions_framework.http
def vm_ready(request: Request) -> push.Response:
    return push.serve(
        request, "vm_ready", lambda message: flow.on_message(message, deps(), auth_deps()), bus
    )
