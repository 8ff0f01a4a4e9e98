"""A client of the old service or of Vertex AI asks: every method at its own address, answered as Google does."""

from __future__ import annotations

import json

import functions_framework
from flask import Request, Response

from shared.api import door
from shared.api.call import Request as ApiRequest
from shared.wiring.api import service


@functions_framework.http
def api(request: Request) -> Response:
    asked = ApiRequest(
        request.method,
        request.path,
        dict(request.args),
        {name.lower(): value for name, value in request.headers.items()},
        request.get_data(),
    )
    answer = door.serve(asked, service())
    body = json.dumps(answer.body, ensure_ascii=False, indent=2) + "\n"
    return Response(body, answer.status, dict(answer.headers), content_type="application/json; charset=UTF-8")
