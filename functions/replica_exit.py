"""A replica's program ended: the judge says what that means."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push, wire
from shared.flows import replica_exit as flow
from shared.wiring.identity import proven
from shared.wiring.light import bus, deps


@functions_framework.http
def replica_exit(request: Request) -> push.Answer:
    return push.serve(
        request,
        "replica_exit",
        lambda message: flow.handle(proven(wire.replica_exit(message.data), message), deps()),
        bus,
    )
