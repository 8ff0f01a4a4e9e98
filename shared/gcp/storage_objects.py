"""Objects on Cloud Storage, over REST.

Source: Cloud Storage's JSON API, v1 (https://cloud.google.com/storage/docs/json_api/v1/objects).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

from shared.errors import TemporaryError
from shared.gcp import callers
from shared.gcp.rest import Rest, RestError

GOOGLE: Final = "https://storage.googleapis.com"
TIMEOUT_S: Final = 12.0
"""Of one try; four of them fit into the functions' own deadline of 60 s."""


class StorageObjects:
    """See `shared.ports.Objects`. Thread-safe."""

    def __init__(self) -> None:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        caller = callers.Emulated() if emulator else callers.ours()
        self._rest = Rest(emulator or GOOGLE, caller, TIMEOUT_S)

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        desired = {"alt": "media", **({"generation": str(generation)} if generation else {})}
        try:
            data = self._call("GET", f"{_object(uri)}?{urlencode(desired)}", {"Range": f"bytes=0-{max_bytes - 1}"})
        except RestError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return b""  # it has no first byte
            raise
        return data[:max_bytes]  # of what is stored compressed, all comes

    def write(self, uri: str, data: bytes, *, content_type: str) -> None:
        bucket, name = _parts(uri)
        path = f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?{urlencode({'uploadType': 'media', 'name': name})}"
        self._call("POST", path, {"Content-Type": content_type}, data)

    def delete(self, uri: str) -> None:
        try:
            self._call("DELETE", _object(uri))
        except RestError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def close(self) -> None:
        self._rest.close()

    def _call(self, method: str, path: str, headers: Mapping[str, str] | None = None, data: bytes = b"") -> bytes:
        try:
            return self._rest.call(method, path, data, headers or {})
        except RestError as error:
            if error.is_transient:
                raise TemporaryError(f"Cloud Storage: {error}") from error
            raise


def _object(uri: str) -> str:
    bucket, name = _parts(uri)
    return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}"


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name
