"""A client of the old service or of Vertex AI asks: every method at its own address, answered as Google does."""

from __future__ import annotations

import json

import functions_framework
from flask import Request, Response

from shared.api import handler
from shared.api.request import BODY_BYTES_READ
from shared.api.request import Request as ApiRequest
from shared.wiring.api import service


@functions_framework.http
def api(request: Request) -> Response:
    asked = ApiRequest(
        request.method,
        request.path,
        dict(request.args),
        {name.lower(): value for name, value in request.headers.items()},
        request.stream.read(BODY_BYTES_READ),
    )
    answer = handler.serve(asked, service())
    body = json.dumps(answer.body, ensure_ascii=False, indent=2) + "\n"
    # functions-framework reads the rest of a request into memory unless its answer is a stream.
    is_cut = len(asked.body) == BODY_BYTES_READ
    content = iter([body]) if is_cut else body
    return Response(content, answer.status, dict(answer.headers), content_type="application/json; charset=UTF-8")
