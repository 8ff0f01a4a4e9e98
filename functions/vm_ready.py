"""A replica's VM is set up and is about to start the program."""

from __future__ import annotations

from dataclasses import replace

import functions_framework
from flask import Request

from trainmaster.flows import vm_ready as flow
from trainmaster.messaging import push
from trainmaster.messaging.agent_messages import decode_subject, decode_vm_ready
from trainmaster.messaging.authenticate import authenticate
from trainmaster.wiring.authentication import auth_deps
from trainmaster.wiring.core_services import bus, deps


@functions_framework.http
def vm_ready(request: Request) -> push.Response:
    return push.serve(request, "vm_ready", _handle, bus)


def _handle(message: push.Message) -> None:
    authenticated = authenticate(decode_subject(message.data), message, auth_deps())
    event = decode_vm_ready(message.data, message.published_at)
    flow.handle(replace(event, host_vm=authenticated.machine), deps(), authenticated.loaded)
