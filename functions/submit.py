"""A job was submitted: accept it, or reject it with all of its problems."""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import submit as flow
from trainmaster.messaging import push
from trainmaster.wiring.core_services import bus
from trainmaster.wiring.intake_deps import intake_deps


@functions_framework.http
def submit(request: Request) -> push.Response:
    return push.serve(
        request,
        "submit",
        lambda message: flow.on_message(message, intake_deps()),
        bus,
        handle_unreadable=lambda message, reason: flow.reject(message.data, reason, intake_deps()),
    )
