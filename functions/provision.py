"""The fleet may no longer equal what a job wants: make it so. The only function that touches machines."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import provision as flow
from shared.messaging import codec, push
from shared.wiring.core_services import bus, deps
from shared.wiring.fleet import machines


@functions_framework.http
def provision(request: Request) -> push.Answer:
    return push.serve(
        request, "provision", lambda message: flow.handle(codec.provision(message.data), machines(), deps()), bus
    )
