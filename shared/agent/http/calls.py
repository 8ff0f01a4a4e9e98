"""One HTTP call, how it fails, and how long to wait before the next."""

from __future__ import annotations

import http.client
import random
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class HttpError(Exception):
    """A call that was refused (``status``) or did not get through (``status`` 0)."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 429) or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


@dataclass(frozen=True)
class Answer:
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
) -> Answer:
    """One HTTP call; ``into`` streams the answer to a file. Raises HttpError only."""
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310 - the base is ours
    handlers = [] if proxies else [urllib.request.ProxyHandler({})]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            if into is None:
                return Answer(answer.headers, answer.read())
            with into.open("wb") as file:
                while True:
                    piece = answer.read(1 << 20)
                    if not piece:
                        break
                    file.write(piece)
            expected = answer.headers.get("Content-Length")
            if expected is not None and into.stat().st_size != int(expected):
                raise HttpError(0, "the answer was cut short")
            return Answer(answer.headers, b"")
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(500).decode("utf-8", "replace").strip()
        raise HttpError(error.code, detail or str(error.reason)) from error
    except urllib.error.URLError as error:
        raise HttpError(0, str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(0, f"{type(error).__name__}: {error}") from error


def utc_now() -> str:
    """RFC 3339 with milliseconds."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def backoffs(cap_s: float, base_s: float = 0.5) -> Iterator[float]:
    """Waiting times that double up to the cap, each with jitter, so that a thousand VMs do not knock in step."""
    wait = base_s
    while True:
        yield min(wait, cap_s) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter is no secret
        wait = min(wait * 2, cap_s)
