"""A replica is up and about to start its program."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push, wire
from shared.flows import vm_ready as flow
from shared.wiring.identity import proven
from shared.wiring.light import bus, deps


@functions_framework.http
def vm_ready(request: Request) -> push.Answer:
    return push.serve(
        request, "vm_ready", lambda message: flow.handle(proven(wire.vm_ready(message.data), message), deps()), bus
    )
