"""One HTTP call, its errors, and the delays between retries."""

from __future__ import annotations

import http.client
import random
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

PIECE_BYTES = 1 << 20  # of a response that goes to a file
ERROR_BYTES_MAX = 1 << 20  # of the body of an error that is read
DETAIL_BYTES = 500  # of it that the message of an error quotes
NO_ANSWER = 0
"""Status of a call that got no answer."""
TRANSIENT_STATUSES = (NO_ANSWER, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Statuses after which the same call may succeed later, besides those of the server's errors."""


class HttpError(Exception):
    """An HTTP call was answered with an error `status`, or got no answer (`NO_ANSWER`)."""

    def __init__(self, status: int, detail: str, body: str = "") -> None:
        """`body`: that of the answer; `detail`: what a person should read."""
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status
        self.body = body

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        is_server_error = self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return is_server_error or self.status in TRANSIENT_STATUSES


@dataclass(frozen=True)
class HttpResponse:
    """A successful response."""

    headers: Mapping[str, str]
    body: bytes


def call(
    url: str,
    *,
    headers: Mapping[str, str],
    timeout: float,
    body: bytes | None = None,
    proxies: bool = False,
    into: Path | None = None,
    method: str | None = None,
) -> HttpResponse:
    """Make one HTTP call. Raises HttpError only.

    `timeout` is in seconds without a byte. `proxies`: use the proxies that the environment names.
    `into` streams the response body to that file, and the returned body is empty.
    """
    # The suppressed rule is about schemes like file:, but the base of each URL is ours.
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310
    handlers = [] if proxies else [urllib.request.ProxyHandler({})]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as response:
            if into is None:
                return HttpResponse(response.headers, response.read())
            with into.open("wb") as file:
                shutil.copyfileobj(response, file, PIECE_BYTES)
            expected = response.headers.get("Content-Length")
            if expected is not None and into.stat().st_size != int(expected):
                raise HttpError(status=NO_ANSWER, detail="the response was cut short")
            return HttpResponse(response.headers, body=b"")
    except urllib.error.HTTPError as error:
        with error:
            content = error.read(ERROR_BYTES_MAX)
        detail = content[:DETAIL_BYTES].decode("utf-8", "replace").strip() or str(error.reason)
        raise HttpError(error.code, detail, content.decode("utf-8", "replace")) from error
    except urllib.error.URLError as error:
        raise HttpError(status=NO_ANSWER, detail=str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(status=NO_ANSWER, detail=f"{type(error).__name__}: {error}") from error


def backoffs(cap_s: float, base_s: float = 0.5) -> Iterator[float]:
    """Yield delays in seconds without end: they double up to `cap_s`, with jitter, so that VMs do
    not retry in step.
    """
    wait = base_s
    while True:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - jitter need not be secret
        yield min(wait, cap_s) * jitter
        wait = min(wait * 2, cap_s)
