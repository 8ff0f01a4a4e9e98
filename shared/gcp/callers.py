"""Who calls Google's APIs, as headers of a request.

A function asks the metadata server, as Google's libraries would: google-auth takes most of a bare app's import again,
for kinds of credentials that a function never has (docs/decisions/0018-cold-starts.md). Elsewhere it finds them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Protocol

import urllib3

from shared.errors import PermanentError, TemporaryError

METADATA: Final = "metadata.google.internal"
TOKEN_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 - where one is had
SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S: Final = 5.0
EARLY_S: Final = 225.0
"""How long before its end a token is replaced. Source: google-auth's own threshold, 3 min 45 s."""
ON_CLOUD_RUN: Final = "K_SERVICE"
"""Source: Cloud Run's container contract; functions are its services."""

Headers = Mapping[str, str]


class Caller(Protocol):
    def headers(self, *, anew: bool = False) -> Headers:
        """`anew`: what was given last was not accepted. Raises TemporaryError, and PermanentError where somebody has to
        log in."""
        ...


class Emulated:
    """Emulators ask for no credentials; Firestore's takes the owner of its project for one whom no rules hold back."""

    def headers(self, *, anew: bool = False) -> Headers:  # noqa: ARG002 - there is only one
        return {"Authorization": "Bearer owner"}


class Service:
    """The service account that the function runs as. Thread-safe. `clock` is monotonic, in seconds."""

    def __init__(self, host: str = METADATA, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = f"http://{host}{TOKEN_PATH}"
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._good_until = float("-inf")

    def headers(self, *, anew: bool = False) -> Headers:
        with self._lock:
            if anew or self._clock() >= self._good_until:
                asked_at = self._clock()
                self._token, lasts_s = _token(self._url)
                # The server gives out one token until shortly before its end: then it is asked every time.
                self._good_until = asked_at + lasts_s - EARLY_S
            return {"Authorization": f"Bearer {self._token}"}


class Own:
    """Whoever runs the program: google-auth's application default credentials, with the project that is billed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: Any = None

    def headers(self, *, anew: bool = False) -> Headers:
        import google.auth  # the command line's alone
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request  # through the environment's proxy

        said: dict[str, str] = {}
        try:
            with self._lock:
                if self._found is None:
                    self._found, _ = google.auth.default(scopes=SCOPES)
                request = Request()
                if anew:
                    self._found.refresh(request)
                self._found.before_request(request, "POST", "", said)
        except GoogleAuthError as error:
            passes = isinstance(error, TransportError) or error.retryable
            raise (TemporaryError if passes else PermanentError)(f"credentials: {error}") from error
        return said


@cache
def ours() -> Caller:
    if ON_CLOUD_RUN in os.environ:
        return Service(os.environ.get("GCE_METADATA_HOST", METADATA))
    return Own()


def _token(url: str) -> tuple[str, float]:
    """And for how many seconds it is good. Source: "Authenticate workloads using service accounts", Compute Engine."""
    try:
        answer = urllib3.request(
            "GET",
            url,
            headers={"Metadata-Flavor": "Google"},
            timeout=TIMEOUT_S,
            retries=urllib3.Retry(3, backoff_factor=0.1),
        )
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise TemporaryError(f"the metadata server answers {answer.status}: {answer.data[:300]!r}")
        said = answer.json()
        return str(said["access_token"]), float(said["expires_in"])
    except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
        raise TemporaryError(f"the metadata server gives no token: {error!r}") from error
