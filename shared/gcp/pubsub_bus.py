"""The Bus on Pub/Sub, over REST: docs/decisions/0018-cold-starts.md has what its client library's import costs."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Final

import google.auth
import requests
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from shared.errors import TemporaryError

GOOGLE: Final = "https://pubsub.googleapis.com"
SCOPES: Final = ("https://www.googleapis.com/auth/pubsub",)
TIMEOUT_S: Final = 10.0
PASSING: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
AGAIN: Final = Retry(
    total=3,
    backoff_factor=0.1,
    status_forcelist=[429, 500, 502, 503, 504],
    allowed_methods=None,
    raise_on_status=False,
)
"""A message that was published twice is one that was delivered twice: nothing new to anybody who reads it."""


class PubsubBus:
    """See `shared.ports.Bus`. Thread-safe, as requests is."""

    def __init__(self, project: str) -> None:
        emulator = os.environ.get("PUBSUB_EMULATOR_HOST")
        self._needs_credentials = not emulator
        self._topics = f"{f'http://{emulator}' if emulator else GOOGLE}/v1/projects/{project}/topics"

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        message = {"data": base64.b64encode(data).decode("ascii"), "attributes": dict(attributes)}
        try:
            answer = self._session.post(
                f"{self._topics}/{topic}:publish", json={"messages": [message]}, timeout=TIMEOUT_S
            )
        except (requests.RequestException, GoogleAuthError) as error:
            raise TemporaryError(f"publish to {topic}: {error}") from error
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status_code in PASSING:
            raise TemporaryError(f"publish to {topic}: HTTP {answer.status_code}: {answer.reason}")
        answer.raise_for_status()

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        if self._needs_credentials:
            credentials, _ = google.auth.default(scopes=SCOPES)
            session = AuthorizedSession(credentials)
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=AGAIN))
        return session
