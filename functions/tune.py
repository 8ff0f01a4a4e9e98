"""A tuning job may want other trials than it has: make it so."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push, wire
from shared.flows import tune as flow
from shared.wiring.light import bus, deps
from shared.wiring.suggesting import suggester


@functions_framework.http
def tune(request: Request) -> push.Answer:
    return push.serve(request, "tune", lambda message: flow.handle(wire.tune(message.data), suggester(), deps()), bus)
