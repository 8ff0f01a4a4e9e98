"""One HTTP call to a part of the stack. Not urllib, which would take a proxy of the shell's environment."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

TIMEOUT_S: Final = 10.0


class CallError(Exception):
    """The part answered with an error: `status` and what it said."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status} {said}")
        self.status = status


def call(host: str, method: str, path: str, body: object = None, *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The JSON object answered, {} for none. Raises CallError from status 400 on, OSError if nobody answers."""
    connection = http.client.HTTPConnection(host, timeout=timeout_s)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{host}: {error!r}") from error
    finally:
        connection.close()
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise CallError(answer.status, said.decode(errors="replace").strip())
    parsed: dict[str, Any] = json.loads(said) if said.strip() else {}
    return parsed


def answers(host: str, path: str, *, timeout_s: float) -> bool:
    """Whether anything, an error included, comes back."""
    connection = http.client.HTTPConnection(host, timeout=timeout_s)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
