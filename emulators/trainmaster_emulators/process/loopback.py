"""HTTP calls to services of the stack. urllib is not used because it applies the proxy settings of
the environment.
"""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

TIMEOUT_S: Final = 30.0


class CallError(Exception):
    """The service returned an error.

    `status` is the HTTP status; the message includes the response body.
    """

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status


def call(
    host: str,
    method: str,
    path: str,
    body: object = None,
    *,
    timeout_s: float = TIMEOUT_S,
    **headers: str,
) -> dict[str, Any]:
    """Call a service and return the JSON object of its response, {} for an empty one.

    `host` is `host:port`. A `body` of bytes is sent as it is, any other as JSON. Raises CallError
    for status 400 and above, OSError when the service does not respond.
    """
    connection = http.client.HTTPConnection(host, timeout=timeout_s)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        content_type = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        connection.request(method, path, data, {"Content-Type": content_type, **headers})
        response = connection.getresponse()
        payload = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{host}: {error!r}") from error
    finally:
        connection.close()
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        raise CallError(response.status, payload.decode(errors="replace").strip())
    parsed: dict[str, Any] = json.loads(payload) if payload.strip() else {}
    return parsed


def responds(host: str, path: str, *, timeout_s: float) -> bool:
    """Return whether the service sends any response, even an error."""
    connection = http.client.HTTPConnection(host, timeout=timeout_s)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
