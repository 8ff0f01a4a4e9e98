"""A tuning job's trials may differ from what its ledger says: start, cancel and record trials until they are equal."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import tune as flow
from shared.messaging import push
from shared.messaging.internal_requests import decode_tune
from shared.wiring.core_services import bus, deps
from shared.wiring.suggester import suggester


@functions_framework.http
def tune(request: Request) -> push.Response:
    return push.serve(request, "tune", _handle, bus)


def _handle(message: push.Message) -> None:
    flow.handle(decode_tune(message.data), suggester(), deps())
