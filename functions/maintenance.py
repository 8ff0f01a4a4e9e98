"""A VM is going or gone: its replica gets another one."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push, wire
from shared.flows import maintenance as flow
from shared.wiring.identity import proven_loss
from shared.wiring.light import bus, deps


@functions_framework.http
def maintenance(request: Request) -> push.Answer:
    return push.serve(
        request,
        "maintenance",
        lambda message: flow.handle(proven_loss(wire.maintenance(message.data), message), deps()),
        bus,
    )
