"""A file was uploaded below jobs/: submit it, or answer beside it with every problem."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push, wire
from shared.flows import upload as flow
from shared.wiring.light import bus, deps
from shared.wiring.objects import objects


@functions_framework.http
def upload(request: Request) -> push.Answer:
    return push.serve(
        request,
        "upload",
        lambda message: flow.handle(wire.uploaded(message.attributes, message.data), objects(), deps()),
        bus,
    )
