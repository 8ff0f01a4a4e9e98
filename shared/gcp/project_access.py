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
from urllib.parse import quote, urlsplit

from shared.errors import TemporaryError
from shared.ports import UnknownTokenError

ACT_AS: Final = "iam.serviceAccounts.actAs"
TIMEOUT_S: Final = 10.0
_SWITCHED_OFF: Final = "SERVICE_DISABLED"
"""Source: the reason in Google's ErrorInfo where the API is not enabled in the project."""


class ProjectAccess:
    """See `shared.ports.Access`. Thread-safe: a connection per question."""

    def __init__(self, project: str, endpoint: str, accounts_endpoint: str) -> None:
        self._project = f"{endpoint}/v1/projects/{project}"
        self._accounts = f"{accounts_endpoint}/v1/projects/-/serviceAccounts"

    def granted(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        status, said = _ask(self._project, token, permissions)
        return _granted(status, said, permissions)

    def may_act_as(self, token: str, account: str) -> bool:
        """Source: what the old service asked of who named an account for a job."""
        status, said = _ask(f"{self._accounts}/{quote(account)}", token, [ACT_AS])
        return status != HTTPStatus.NOT_FOUND and bool(_granted(status, said, [ACT_AS]))


def _granted(status: int, said: str, asked: Sequence[str]) -> frozenset[str]:
    if status == HTTPStatus.OK:
        return frozenset(json.loads(said).get("permissions", ())) & frozenset(asked)
    if status == HTTPStatus.UNAUTHORIZED:
        raise UnknownTokenError
    if status == HTTPStatus.FORBIDDEN and _SWITCHED_OFF not in said:
        return frozenset()  # a caller who may not even know that it exists
    raise TemporaryError(f"Google's IAM answers {status}: {said[:300]}")


def _ask(resource: str, token: str, permissions: Sequence[str]) -> tuple[int, str]:
    parts = urlsplit(f"{resource}:testIamPermissions")
    kind = http.client.HTTPConnection if parts.scheme == "http" else http.client.HTTPSConnection
    connection = kind(parts.netloc, timeout=TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", parts.path, json.dumps({"permissions": list(permissions)}), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise TemporaryError(f"Google's IAM does not answer: {error!r}") from None
    finally:
        connection.close()
