"""A file was uploaded below jobs/: submit it, or answer beside it with every problem."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import upload as flow
from shared.messaging import codec, push
from shared.wiring.core_services import bus, deps
from shared.wiring.objects import objects


@functions_framework.http
def upload(request: Request) -> push.Answer:
    return push.serve(
        request,
        "upload",
        lambda message: flow.handle(codec.uploaded(message.attributes, message.data), objects(), deps()),
        bus,
    )
