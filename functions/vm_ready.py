"""A replica is up and about to start its program."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push, wire
from shared.flows import vm_ready as flow
from shared.wiring.light import bus, deps


@functions_framework.http
def vm_ready(request: Request) -> push.Answer:
    return push.serve(request, "vm_ready", lambda message: flow.handle(wire.vm_ready(message.data), deps()), bus)
