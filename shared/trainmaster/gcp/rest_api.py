"""JSON calls of a Google API for which no client library of Google is suitable.

Each module that uses it says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.api_core import exceptions

from trainmaster.gcp import clients

ERROR_CHARACTERS_MAX: Final = 300
"""Characters of a response without Google's form of error that its error contains."""

Json = dict[str, Any]
Parameter = str | Sequence[str]
"""Value of a query parameter; a sequence repeats the parameter."""


class RestApi:
    """One API at one address. Thread-safe.

    `google` is Google's address; `endpoint` an emulator's, which is sent no credentials. `token`:
    an access token to use in place of our own credentials. `quota_project`: the project whose quota
    and enabled APIs count, in place of the one that the credentials belong to.
    """

    def __init__(
        self, google: str, endpoint: str, timeout_s: float, token: str = "", quota_project: str = ""
    ) -> None:
        self.base = endpoint.rstrip("/") or google
        self._options = endpoint, timeout_s, token
        self._headers = {"X-Goog-User-Project": quota_project} if quota_project else {}
        self._session: clients.Session | None = None

    def call(
        self, method: str, path: str, body: Json | None = None, **parameters: Parameter
    ) -> Json:
        """Return the response.

        Raises GoogleAPICallError for an error, requests' errors for no response at all.
        """
        if self._session is None:
            self._session = clients.session(*self._options)
        response = self._session.request(
            method,
            f"{self.base}{path}",
            params=parameters,
            json=body,
            headers=self._headers,
            allow_redirects=False,
        )
        if not response.ok:
            raise _error_of(response)
        try:
            answer: Json = response.json()
        except ValueError as error:
            raise exceptions.BadGateway(f"{self.base}{path}: the response is not JSON") from error
        return answer

    def get(self, path: str, **parameters: Parameter) -> Json:
        """Return the resource. Raises as `call`."""
        return self.call("GET", path, body=None, **parameters)

    def find(self, path: str) -> Json | None:
        """Return the resource. None: it does not exist."""
        try:
            return self.get(path)
        except exceptions.NotFound:
            return None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()  # type: ignore[no-untyped-call]


def _error_of(response: Any) -> exceptions.GoogleAPICallError:
    """Return the error of the response.

    OpenID Connect's UserInfo has a form of its own, in which `error` is a string.
    """
    error: exceptions.GoogleAPICallError
    try:
        error = exceptions.from_http_response(response)
    except AttributeError:
        error = exceptions.from_http_status(
            response.status_code, response.text[:ERROR_CHARACTERS_MAX], response=response
        )
    return error
