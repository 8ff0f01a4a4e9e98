"""Cloud Scheduler calls this function once a minute: find what no event reported."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import sweep as flow
from shared.messaging import push
from shared.wiring.core_services import bus, deps


@functions_framework.http
def sweep(request: Request) -> push.Response:
    return push.serve(request, "sweep", lambda _: flow.handle(deps()), bus)
