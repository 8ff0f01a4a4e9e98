"""The console for a team, behind Identity-Aware Proxy: pages about jobs, and on the operator's
console, actions.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO

import functions_framework
from flask import Flask, Request, Response

from trainmaster.console.web import create_app
from trainmaster.messaging import json_log
from trainmaster.wiring.console import hosted_console

VERSION = "deployed"


@cache
def _app() -> Flask:
    json_log.configure()
    return create_app(*hosted_console(VERSION))


@functions_framework.http
def console(request: Request) -> Response:
    # functions-framework reads the body after the response, and would find it consumed. Cloud Run
    # limits it to 32 MiB.
    body = BytesIO(request.get_data())
    with _app().request_context({**request.environ, "wsgi.input": body}):
        return _app().full_dispatch_request()
