"""A replica's program ended: the judge says what that means."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import replica_exit as flow
from shared.messaging import codec, push
from shared.wiring.authenticate import proven
from shared.wiring.core_services import bus, deps


@functions_framework.http
def replica_exit(request: Request) -> push.Answer:
    return push.serve(
        request,
        "replica_exit",
        lambda message: flow.handle(proven(codec.replica_exit(message.data), message), deps()),
        bus,
    )
