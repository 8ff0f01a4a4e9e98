"""Objects on Cloud Storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import requests
from google.api_core import exceptions
from google.cloud import storage

from shared.errors import TemporaryError

TIMEOUT_S: Final = 30.0


class StorageObjects:
    """See `shared.ports.Objects`."""

    def __init__(self, client: storage.Client) -> None:
        self._client = client

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        blob = self._blob(uri, generation)
        with _translated():
            try:
                data = blob.download_as_bytes(end=max_bytes - 1, timeout=TIMEOUT_S)
            except exceptions.NotFound:
                return None
            except exceptions.RequestRangeNotSatisfiable:
                return b""
        return bytes(data)

    def write(self, uri: str, data: bytes, *, content_type: str) -> None:
        with _translated():
            self._blob(uri).upload_from_string(data, content_type=content_type, timeout=TIMEOUT_S)

    def delete(self, uri: str) -> None:
        with _translated():
            try:
                self._blob(uri).delete(timeout=TIMEOUT_S)
            except exceptions.NotFound:
                return

    def _blob(self, uri: str, generation: int | None = None) -> storage.Blob:
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        return storage.Blob(name, self._client.bucket(bucket), generation=generation)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (exceptions.ServerError, exceptions.TooManyRequests, requests.exceptions.RequestException) as error:
        raise TemporaryError(str(error)) from error
