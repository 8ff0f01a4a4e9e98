"""A tuning job's trials may differ from what its ledger (record of decisions) says: start, cancel
and record trials until they are equal.
"""

from __future__ import annotations

import functions_framework
from flask import Request

from trainmaster.flows import tune as flow
from trainmaster.messaging import push
from trainmaster.suggesters.optuna_suggester import OptunaSuggester
from trainmaster.wiring.core_services import bus, creation_deps


@functions_framework.http
def tune(request: Request) -> push.Response:
    return push.serve(
        request,
        "tune",
        lambda message: flow.on_message(message, creation_deps(), OptunaSuggester()),
        bus,
    )
