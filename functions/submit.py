"""A job was submitted: accept it whole, or reject it with every problem."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared import push
from shared.flows import submit as flow
from shared.wiring.light import bus, deps


@functions_framework.http
def submit(request: Request) -> push.Answer:
    return push.serve(
        request,
        "submit",
        lambda message: flow.handle(message.data, message.attributes.get("source"), deps(), message.told_at),
        bus,
    )
