"""A job file was uploaded below jobs/: submit it, or write all of its problems next to it."""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import upload as flow
from trainmaster.messaging import push
from trainmaster.wiring.core_services import bus
from trainmaster.wiring.intake_deps import intake_deps
from trainmaster.wiring.objects import objects


@functions_framework.http
def upload(request: Request) -> push.Response:
    return push.serve(
        request, "upload", lambda message: flow.on_message(message, intake_deps(), objects()), bus
    )
