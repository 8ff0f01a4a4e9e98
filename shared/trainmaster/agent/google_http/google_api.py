"""Calls to Google's APIs as this VM."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from trainmaster.agent.google_http.http_call import HttpError, HttpResponse, call
from trainmaster.agent.google_http.metadata_server import MetadataServer


class GoogleApi:
    """One Google API, or its emulator if the environment names one."""

    def __init__(self, emulator: str | None, real: str, metadata: MetadataServer) -> None:
        """`emulator` is a host and port or a URL; without one, the URL `real` is called."""
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
        range_header: str | None = None,
        content_type: str = "application/json",
    ) -> HttpResponse:
        """Call the API with the VM's access token; an emulator gets none. Raises HttpError.

        `timeout` is in seconds without a byte. `into` streams the response body to that file.
        `range_header`: the bytes of an object that are requested, as in HTTP: ``bytes=0-99``.
        `content_type` is that of the body.
        """
        token = None if self._emulated else self._metadata.access_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = content_type
        if range_header is not None:
            headers["Range"] = range_header
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
