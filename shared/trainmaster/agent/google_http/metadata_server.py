"""The VM's metadata server: identity, attributes, tokens, and long polls."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from trainmaster.agent.google_http.http_call import NO_ANSWER, HttpError, HttpResponse, call

LONG_POLL_S = 60  # as Google's guest agent does it; the client waits `CALL_S` longer
CALL_S = 10.0  # timeout of any other call
TOKEN_MARGIN_S = 60.0  # a new token is requested when the old one expires within this time


class MetadataServer:
    """All methods raise HttpError unless stated otherwise. They may be called from any thread."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/computeMetadata/v1/"
        self._lock = threading.Lock()
        self._token: str | None = None
        self._token_until = 0.0
        """When the token is requested again, by the monotonic clock."""

    def get(self, path: str, timeout: float = CALL_S) -> str:
        """Return the value of an entry. `timeout` is in seconds."""
        return self._get(path, timeout).body.decode()

    def find(self, path: str) -> str | None:
        """Return the value of an entry without white space around it; None if there is no such
        entry.
        """
        try:
            return self.get(path).strip()
        except HttpError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def time(self) -> str:
        """Return Google's time in RFC 3339, from the header of a response.

        The VM's own clock may be wrong.
        """
        date = self._get("instance/id", CALL_S).headers.get("Date")
        try:
            return parsedate_to_datetime(date or "").isoformat()
        except (TypeError, ValueError) as error:
            raise HttpError(
                status=NO_ANSWER, detail=f"the metadata server's date cannot be read: {date}"
            ) from error

    def put(self, path: str, value: str) -> None:
        """Write a guest attribute. `path` begins with instance/guest-attributes/."""
        headers = {"Metadata-Flavor": "Google"}
        call(self._base + path, headers=headers, timeout=CALL_S, body=value.encode(), method="PUT")

    def wait(self, path: str, etag: str | None) -> tuple[str, str | None]:
        """Return the value and its etag.

        Without an etag the answer comes at once; with one, when the value differs or after
        `LONG_POLL_S`.
        """
        if etag is None:
            response = self._get(path, CALL_S)
        else:
            query = {"wait_for_change": "true", "timeout_sec": str(LONG_POLL_S), "last_etag": etag}
            separator = "&" if "?" in path else "?"
            response = self._get(
                f"{path}{separator}{urllib.parse.urlencode(query)}", LONG_POLL_S + CALL_S
            )
        return response.body.decode(), response.headers.get("ETag")

    def access_token(self) -> str | None:
        """Return the OAuth token of the VM's account; None if the VM has no account.

        It is cached until `TOKEN_MARGIN_S` before it expires.
        """
        with self._lock:
            if self._token is None or time.monotonic() >= self._token_until:
                try:
                    payload = json.loads(self.get("instance/service-accounts/default/token"))
                    token = str(payload["access_token"])
                    lasts_s = float(payload["expires_in"])
                except HttpError as error:
                    if error.transient:
                        raise
                    return None
                except (ValueError, KeyError, TypeError) as error:
                    raise HttpError(
                        status=NO_ANSWER, detail="the metadata server's token cannot be read"
                    ) from error
                self._token = token
                self._token_until = time.monotonic() + lasts_s - TOKEN_MARGIN_S
            return self._token

    def forget_token(self) -> None:
        """Let the next call of `access_token` request a token: Google has rejected this one."""
        with self._lock:
            self._token = None

    def identity_token(self, audience: str) -> str | None:
        """Return a signed statement of this VM's identity; None if the metadata server refuses to
        issue one.
        """
        query = urllib.parse.urlencode({"audience": audience, "format": "full"})
        try:
            return self.get(f"instance/service-accounts/default/identity?{query}").strip()
        except HttpError as error:
            if error.transient:
                raise
            return None

    def _get(self, path: str, timeout: float) -> HttpResponse:
        return call(self._base + path, headers={"Metadata-Flavor": "Google"}, timeout=timeout)
