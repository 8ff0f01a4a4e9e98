"""A job was submitted: accept it whole, or reject it with every problem."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import submit as flow
from shared.messaging import push
from shared.wiring.core_services import bus, deps


@functions_framework.http
def submit(request: Request) -> push.Answer:
    return push.serve(
        request,
        "submit",
        lambda message: flow.handle(message.data, message.attributes.get("source"), deps(), message.told_at),
        bus,
    )
