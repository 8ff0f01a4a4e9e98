"""A job file was uploaded below jobs/: submit it, or write all of its problems next to it."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import upload as flow
from shared.messaging import push
from shared.messaging.google_events import decode_upload
from shared.wiring.core_services import bus
from shared.wiring.intake_deps import intake_deps
from shared.wiring.objects import objects


@functions_framework.http
def upload(request: Request) -> push.Response:
    return push.serve(request, "upload", _handle, bus)


def _handle(message: push.Message) -> None:
    flow.handle(decode_upload(message.attributes, message.data), objects(), intake_deps())
