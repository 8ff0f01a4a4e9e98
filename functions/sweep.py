"""Cloud Scheduler calls this function once a minute: find what no event reported."""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import sweep as flow
from trainmaster.messaging import push
from trainmaster.wiring.core_services import bus, deps


@functions_framework.http
def sweep(request: Request) -> push.Response:
    return push.serve(request, "sweep", lambda message: flow.on_message(message, deps()), bus)
