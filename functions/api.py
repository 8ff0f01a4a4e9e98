"""The HTTP API: methods of AI Platform Training and Vertex AI, at their own addresses and with
Google's responses.
"""

from __future__ import annotations

import json

import functions_framework
from flask import Request, Response

from trainmaster.api import handler
from trainmaster.api.request import BODY_BYTES_READ, query_of
from trainmaster.api.request import Request as ApiRequest
from trainmaster.messaging import json_log
from trainmaster.wiring.api import service


@functions_framework.http
def api(request: Request) -> Response:
    json_log.configure()
    api_request = ApiRequest(
        request.method,
        request.path,
        query_of(request.args.items(multi=True)),
        {name.lower(): value for name, value in request.headers.items()},
        request.stream.read(BODY_BYTES_READ),
    )
    api_response = handler.serve(api_request, service())
    body = json.dumps(api_response.body, ensure_ascii=False, indent=2) + "\n"
    # functions-framework would read the rest of the request into memory, unless the response is a
    # stream.
    is_truncated = len(api_request.body) == BODY_BYTES_READ
    content = iter([body]) if is_truncated else body
    return Response(
        content,
        api_response.status,
        dict(api_response.headers),
        content_type="application/json; charset=UTF-8",
    )
