"""Google's APIs over REST: connections are kept, and errors that passes soon is sat out.

Any call may be made twice: what ours write is guarded by a precondition, or the same each time, or a message, which may
be delivered twice anyway. Why no client libraries: docs/decisions/0018-cold-starts.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import urllib3
from urllib3.exceptions import HTTPError

from shared.errors import TemporaryError
from shared.gcp.callers import Caller

TRIES: Final = 4
BACKOFF_S: Final = 0.1
AGAIN: Final = (429, 500, 502, 503, 504)
_PASSING: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, 499)  # the last: CANCELLED
CONNECTIONS: Final = 16
"""As many as a function serves events at a time (infra/functions.tf)."""


class RestError(Exception):
    """The API's own capacity error. `status` is HTTP's, `code` Google's word for it, such as ABORTED, `said` its message."""

    def __init__(self, status: int, code: str, said: str) -> None:
        super().__init__(f"HTTP {status}: {said}")
        self.status = status
        self.code = code
        self.said = said

    @property
    def is_transient(self) -> bool:
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in _PASSING


class Rest:
    """`base` is what paths are added to. `timeout_s` is that of one try. Thread-safe."""

    def __init__(self, base: str, caller: Caller, timeout_s: float, tries: int = TRIES) -> None:
        self._base = base
        self._caller = caller
        again = urllib3.Retry(
            total=tries - 1,
            backoff_factor=BACKOFF_S,
            status_forcelist=AGAIN,
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        self._pool = _pool(base, retries=again, timeout=urllib3.Timeout(total=timeout_s), maxsize=CONNECTIONS)

    def post(self, path: str, body: object) -> Any:
        """JSON for JSON. Raises RestError for what is refused, TemporaryError where nobody answers or the answer cannot
        be read."""
        data = json.dumps(body, allow_nan=False).encode()
        answer = self._sent("POST", path, data, {"Content-Type": "application/json"})
        said = _read(answer)
        if said is None:
            raise TemporaryError(f"{self._base}{path}: no JSON: {answer.data[:100]!r}")
        return said

    def call(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> bytes:
        """Bytes for bytes. Raises as `post` does."""
        answer = self._sent(method, path, data, headers)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            _read(answer)
        return answer.data

    def close(self) -> None:
        self._pool.clear()

    def _sent(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        answer = self._send(method, path, data, {**headers, **self._caller.headers()})
        if answer.status == HTTPStatus.UNAUTHORIZED:
            answer = self._send(method, path, data, {**headers, **self._caller.headers(anew=True)})
        return answer

    def _send(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request(method, f"{self._base}{path}", body=data, headers=headers)
        except HTTPError as error:
            raise TemporaryError(f"{self._base}{path}: {error}") from error


def _read(answer: urllib3.BaseHTTPResponse) -> Any:
    """The answer's JSON, None if it is none. Raises RestError for an error. An answer in parts is a list, and its last
    part may be one, under status 200."""
    try:
        said = json.loads(answer.data)
    except ValueError:
        said = None
    last = said[-1] if isinstance(said, list) and said else said
    error = last.get("error") if isinstance(last, dict) else None
    if isinstance(error, dict):
        status = int(error.get("code") or answer.status)
        raise RestError(status, str(error.get("status", "")), str(error.get("message") or answer.reason))
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise RestError(answer.status, "", str(answer.reason))
    return said


def _pool(base: str, **options: Any) -> urllib3.PoolManager:
    """Through the proxy that the environment names, if it names one for Google."""
    if base.startswith("https://") and ("https_proxy" in os.environ or "HTTPS_PROXY" in os.environ):
        from urllib.parse import unquote
        from urllib.request import getproxies, proxy_bypass  # a tenth of a bare import, for the few who have one

        proxy = getproxies().get("https")
        if proxy and not proxy_bypass(urllib3.util.parse_url(base).host or ""):
            name = urllib3.util.parse_url(proxy).auth  # urllib3 itself does not send it
            headers = urllib3.make_headers(proxy_basic_auth=unquote(name)) if name else None
            return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    return urllib3.PoolManager(**options)
