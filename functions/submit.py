"""A job was submitted: accept it, or reject it with all of its problems."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import submit as flow
from shared.messaging import push
from shared.wiring.core_services import bus
from shared.wiring.intake_deps import intake_deps


@functions_framework.http
def submit(request: Request) -> push.Response:
    return push.serve(request, "submit", _handle, bus)


def _handle(message: push.Message) -> None:
    flow.handle(message.data, message.attributes.get("source"), intake_deps(), message.published_at)
