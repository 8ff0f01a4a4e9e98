"""Who may do what in the project, and who it is: Google's own answers, asked with the caller's own token.

`projects.testIamPermissions` of Cloud Resource Manager needs no permission, works for people and service accounts,
and counts roles however they were granted. No role of ours is needed for any of it, and the token goes to Google only,
in a header.
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
EMAIL_TIMEOUT_S: Final = 2.0
"""Its answer is for the record only."""
_SWITCHED_OFF: Final = "SERVICE_DISABLED"
"""Source: the reason in Google's ErrorInfo where the API is not enabled in the project."""


class ProjectAccess:
    """See `shared.ports.Access`. Thread-safe: a connection per question."""

    def __init__(self, project: str, endpoint: str, accounts_endpoint: str, people_endpoint: str = "") -> None:
        """Without a `people_endpoint` nobody's e-mail is asked for."""
        self._project = f"{endpoint}/v1/projects/{project}"
        self._accounts = f"{accounts_endpoint}/v1/projects/-/serviceAccounts"
        self._people = people_endpoint

    def granted(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        status, said = _test(self._project, token, permissions)
        return _granted(status, said, permissions)

    def may_act_as(self, token: str, account: str) -> bool:
        """Source: what the old service asked of who named an account for a job."""
        status, said = _test(f"{self._accounts}/{quote(account)}", token, [ACT_AS])
        return status != HTTPStatus.NOT_FOUND and bool(_granted(status, said, [ACT_AS]))

    def project_number(self, token: str) -> str:
        """Source: `projects.get` of Cloud Resource Manager v1; it asks for resourcemanager.projects.get."""
        status, said = _ask("GET", self._project, token)
        if status == HTTPStatus.UNAUTHORIZED:
            raise UnknownTokenError
        number = json.loads(said).get("projectNumber") if status == HTTPStatus.OK else None
        if not number:
            raise TemporaryError(f"Cloud Resource Manager answers {status} for the project: {said[:300]}")
        return str(number)

    def email(self, token: str) -> str | None:
        """Source: OpenID Connect's UserInfo. A token without the scope `email` (a service account's) is refused, or
        answered without one."""
        if not self._people:
            return None
        status, said = _ask("GET", f"{self._people}/v1/userinfo", token, timeout_s=EMAIL_TIMEOUT_S)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return None
        if status != HTTPStatus.OK:
            raise TemporaryError(f"Google's UserInfo answers {status}: {said[:300]}")
        person = json.loads(said)
        return str(person["email"]) if person.get("email") and person.get("email_verified") else None


def _granted(status: int, said: str, asked: Sequence[str]) -> frozenset[str]:
    if status == HTTPStatus.OK:
        return frozenset(json.loads(said).get("permissions", ())) & frozenset(asked)
    if status == HTTPStatus.UNAUTHORIZED:
        raise UnknownTokenError
    if status == HTTPStatus.FORBIDDEN and _SWITCHED_OFF not in said:
        return frozenset()  # a caller who may not even know that it exists
    raise TemporaryError(f"Google's IAM answers {status}: {said[:300]}")


def _test(resource: str, token: str, permissions: Sequence[str]) -> tuple[int, str]:
    return _ask("POST", f"{resource}:testIamPermissions", token, json.dumps({"permissions": list(permissions)}))


def _ask(
    method: str, address: str, token: str, body: str | None = None, timeout_s: float = TIMEOUT_S
) -> tuple[int, str]:
    parts = urlsplit(address)
    kind = http.client.HTTPConnection if parts.scheme == "http" else http.client.HTTPSConnection
    connection = kind(parts.netloc, timeout=timeout_s)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise TemporaryError(f"{parts.netloc} does not answer: {error!r}") from None
    finally:
        connection.close()
