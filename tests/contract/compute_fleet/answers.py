"""Answers of Compute Engine that the emulator does not give."""

from __future__ import annotations

import json

import requests


def a_response(status: int, reason: str, body: object = None) -> requests.Response:
    """Return an error of Compute Engine with this reason, or a response with this body."""
    response = requests.Response()
    response.status_code = status
    response.request = requests.Request("GET", "http://127.0.0.1:9").prepare()
    errors = [{"reason": reason, "message": "no"}]
    content = body or {"error": {"code": status, "message": "no", "errors": errors}}
    response._content = json.dumps(content).encode()
    return response
