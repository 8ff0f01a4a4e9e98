"""A job's VMs may differ from what its stored state requires: create, delete and direct VMs until
they are equal.

This is the only function that may touch VMs.
"""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import provision as flow
from trainmaster.messaging import push
from trainmaster.wiring.core_services import bus
from trainmaster.wiring.fleet import fleet_deps, provision_deps


@functions_framework.http
def provision(request: Request) -> push.Response:
    return push.serve(
        request,
        "provision",
        lambda message: flow.on_message(message, provision_deps(), fleet_deps()),
        bus,
    )
