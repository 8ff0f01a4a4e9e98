"""A tuning job may want other trials than it has: make it so."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import tune as flow
from shared.messaging import codec, push
from shared.wiring.core_services import bus, deps
from shared.wiring.suggester import suggester


@functions_framework.http
def tune(request: Request) -> push.Answer:
    return push.serve(request, "tune", lambda message: flow.handle(codec.tune(message.data), suggester(), deps()), bus)
