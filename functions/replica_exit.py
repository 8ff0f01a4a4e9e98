"""A replica's program ended: decide whether it restarts, waits, is replaced, or ends or reruns the job."""

from __future__ import annotations

import functions_framework
from flask import Request

from shared.flows import replica_exit as flow
from shared.flows.authenticate import authenticate
from shared.messaging import push
from shared.messaging.agent_messages import decode_replica_exit
from shared.wiring.authentication import auth_deps
from shared.wiring.core_services import bus, deps


@functions_framework.http
def replica_exit(request: Request) -> push.Response:
    return push.serve(request, "replica_exit", _handle, bus)


def _handle(message: push.Message) -> None:
    event = decode_replica_exit(message.data)
    sender = authenticate(event, message, auth_deps())
    flow.handle(event, deps(), sender.loaded)
