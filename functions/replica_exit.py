"""Handle the end of a replica's program: the replica restarts, waits or is replaced, or the whole
job ends or is run again.
"""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import replica_exit as flow
from trainmaster.messaging import push
from trainmaster.wiring.authentication import auth_deps
from trainmaster.wiring.core_services import bus, deps


@functions_framework.http
def replica_exit(request: Request) -> push.Response:
    return push.serve(
        request, "replica_exit", lambda message: flow.on_message(message, deps(), auth_deps()), bus
    )
