"""The VM's metadata server, and Google's APIs called as this VM."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from http import HTTPStatus
from typing import TYPE_CHECKING

from shared.agent.http.calls import Answer, HttpError, call

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 60  # of a metadata long poll, as Google's guest agent does it; the client waits a little longer


class Metadata:
    """The VM's metadata server: identity, attributes, tokens, and long polls."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/computeMetadata/v1/"
        self._lock = threading.Lock()
        self._token: str | None = None
        self._token_until = 0.0

    def get(self, path: str, timeout: float = 10.0) -> str:
        return self._ask(path, timeout).body.decode()

    def wait(self, path: str, etag: str | None) -> tuple[str, str | None]:
        """The value and its etag: at once without an etag, else when it differs from that etag or WAIT_S passed."""
        if etag is None:
            answer = self._ask(path, 10.0)
        else:
            query = {"wait_for_change": "true", "timeout_sec": str(WAIT_S), "last_etag": etag}
            answer = self._ask(f"{path}{'&' if '?' in path else '?'}{urllib.parse.urlencode(query)}", WAIT_S + 10.0)
        return answer.body.decode(), answer.headers.get("ETag")

    def access_token(self) -> str | None:
        """The VM's OAuth token, from memory until a minute before it ends; None where the VM has no account."""
        with self._lock:
            if self._token is None or time.monotonic() >= self._token_until:
                try:
                    stored = json.loads(self.get("instance/service-accounts/default/token"))
                    token, lasts_s = str(stored["access_token"]), float(stored["expires_in"])
                except HttpError as error:
                    if error.transient:
                        raise
                    return None
                except (ValueError, KeyError, TypeError) as error:
                    raise HttpError(0, "the metadata server's token cannot be read") from error
                self._token = token
                self._token_until = time.monotonic() + lasts_s - 60
            return self._token

    def forget_token(self) -> None:
        with self._lock:
            self._token = None

    def identity_token(self, audience: str) -> str | None:
        """A signed statement of who this VM is; None where the metadata server refuses one."""
        query = urllib.parse.urlencode({"audience": audience, "format": "full"})
        try:
            return self.get(f"instance/service-accounts/default/identity?{query}").strip()
        except HttpError as error:
            if error.transient:
                raise
            return None

    def _ask(self, path: str, timeout: float) -> Answer:
        return call(self._base + path, headers={"Metadata-Flavor": "Google"}, timeout=timeout)


class Google:
    """Calls to a Google API as this VM, or to its emulator where the environment names one."""

    def __init__(self, emulator: str | None, real: str, metadata: Metadata) -> None:
        self._metadata = metadata
        self._emulated = bool(emulator)
        base = emulator or real
        self._base = (base if "://" in base else f"http://{base}").rstrip("/")

    def call(
        self,
        path: str,
        *,
        timeout: float,
        body: bytes | None = None,
        into: Path | None = None,
        method: str | None = None,
    ) -> Answer:
        token = None if self._emulated else self._metadata.access_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            return call(
                self._base + path,
                headers=headers,
                timeout=timeout,
                body=body,
                proxies=not self._emulated,
                into=into,
                method=method,
            )
        except HttpError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                self._metadata.forget_token()
            raise
