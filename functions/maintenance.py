"""A VM is going or gone: its replica gets another one."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import maintenance as flow
from shared.messaging import codec, push
from shared.wiring.authenticate import proven_loss
from shared.wiring.core_services import bus, deps


@functions_framework.http
def maintenance(request: Request) -> push.Answer:
    return push.serve(
        request,
        "maintenance",
        lambda message: flow.handle(proven_loss(codec.maintenance(message.data), message), deps()),
        bus,
    )
