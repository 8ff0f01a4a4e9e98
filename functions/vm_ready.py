"""A replica is up and about to start its program."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import vm_ready as flow
from shared.messaging import codec, push
from shared.wiring.authenticate import proven
from shared.wiring.core_services import bus, deps


@functions_framework.http
def vm_ready(request: Request) -> push.Answer:
    return push.serve(
        request, "vm_ready", lambda message: flow.handle(proven(codec.vm_ready(message.data), message), deps()), bus
    )
