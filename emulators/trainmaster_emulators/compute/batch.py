"""`POST /batch/compute/v1`: several calls in one multipart/mixed request. gcloud sends it for more
than one call.

Each part of type application/http contains a request. Its response has the same Content-ID with the
prefix `response-`. Source: https://cloud.google.com/compute/docs/api/how-tos/batch and apitools'
batch.py.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser, Parser
from typing import cast

from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request, Response

from trainmaster_emulators.machines.compute_errors import ApiError


def answer_batch(request: Request, dispatch: Callable[[Request], Response]) -> Response:
    """Answer a batch. `dispatch` returns the response of one call."""
    head = f"Content-Type: {request.content_type}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + request.get_data())
    if not message.is_multipart():
        raise ApiError(400, "badRequest", "The batch request is not multipart/mixed.")
    boundary = f"batch_{uuid.uuid4().hex}"
    parts = []
    for part in cast(list[Message], message.get_payload()):
        response = dispatch(_parse_request(str(part.get_payload())))
        parts.append(
            f"--{boundary}\r\n"
            "Content-Type: application/http\r\n"
            f"Content-ID: {_response_id(str(part['Content-ID']))}\r\n\r\n"
            f"HTTP/1.1 {response.status}\r\n"
            f"Content-Type: {response.content_type}\r\n"
            f"Content-Length: {response.content_length}\r\n\r\n"
            f"{response.get_data(as_text=True)}\r\n"
        )
    body = "".join(parts) + f"--{boundary}--\r\n"
    return Response(body, content_type=f"multipart/mixed; boundary={boundary}")


def _response_id(content_id: str) -> str:
    """Return the Content-ID of the response to the part with this one."""
    return re.sub(r"^\s*<", "<response-", content_id)


def _parse_request(text: str) -> Request:
    request_line, _, rest = text.lstrip().partition("\n")
    method, target, *_ = request_line.split()
    message = Parser().parsestr(rest)
    builder = EnvironBuilder(
        path=target,
        method=method,
        data=str(message.get_payload()).encode(),
        content_type=message.get("content-type"),
    )
    return Request(builder.get_environ())
