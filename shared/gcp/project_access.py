"""Who may do what in the project: Google's own answer, asked with the caller's own token.

`projects.testIamPermissions` of Cloud Resource Manager needs no permission, works for people and service accounts,
and counts roles however they were granted. No role of ours is needed for it, and the token goes nowhere else.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from shared.errors import TemporaryError
from shared.ports import UnknownTokenError

TIMEOUT_S: Final = 10.0
_SWITCHED_OFF: Final = "SERVICE_DISABLED"
"""Source: the reason in Google's ErrorInfo where the API is not enabled in the project."""


class ProjectAccess:
    """See `shared.ports.Access`. Thread-safe: a connection per question."""

    def __init__(self, project: str, endpoint: str) -> None:
        self._path = f"/v1/projects/{project}:testIamPermissions"
        parts = urlsplit(endpoint)
        self._host = parts.netloc
        self._is_plain = parts.scheme == "http"

    def granted(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        status, said = self._ask(token, json.dumps({"permissions": list(permissions)}))
        if status == HTTPStatus.OK:
            return frozenset(json.loads(said).get("permissions", ())) & frozenset(permissions)
        if status == HTTPStatus.UNAUTHORIZED:
            raise UnknownTokenError
        if status == HTTPStatus.FORBIDDEN and _SWITCHED_OFF not in said:
            return frozenset()  # a caller who may not even know that the project exists
        raise TemporaryError(f"Cloud Resource Manager answers {status}: {said[:300]}")

    def _ask(self, token: str, body: str) -> tuple[int, str]:
        kind = http.client.HTTPConnection if self._is_plain else http.client.HTTPSConnection
        connection = kind(self._host, timeout=TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise TemporaryError(f"Cloud Resource Manager does not answer: {error!r}") from None
        finally:
            connection.close()
