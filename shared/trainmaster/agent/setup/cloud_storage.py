"""Reading objects from Cloud Storage, and writing small ones."""

from __future__ import annotations

import functools
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.setup.setup_errors import Retrier, new_setup_error

# Longest times without a byte: of a download, of a list, and of a write
DOWNLOAD_S = 60.0
LIST_S = 10.0
STORE_S = 10.0


@dataclass(frozen=True)
class StoredObject:
    """An object in Cloud Storage."""

    uri: str
    updated: str
    """RFC 3339, as Cloud Storage writes it; later times compare greater."""
    size: int
    """In bytes."""

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.uri.rsplit("/", 1)[-1]


class StorageReader:
    """Reads and writes objects, with the VM's own account.

    Methods retry transient errors and raise SetupError, unless they say otherwise.
    """

    def __init__(self, storage: GoogleApi, retrier: Retrier) -> None:
        self._storage = storage
        self._retrier = retrier

    def download(self, uri: str, into: Path, generation: int | None = None) -> None:
        """Download an object, or this generation of it, to a file. Missing folders are created."""
        bucket, name = split_uri(uri)
        if not bucket or not name:
            problem = f"{uri} is not the URI of an object in Cloud Storage (gs://BUCKET/NAME)"
            raise new_setup_error("DownloadError", problem, transient=False)
        path = f"/storage/v1/b/{_quote(bucket)}/o/{_quote(name)}?alt=media"
        source = uri
        if generation is not None:
            path += f"&generation={generation}"
            source = f"{uri}, generation {generation} (the version when the job was accepted)"

        def call() -> None:
            into.parent.mkdir(parents=True, exist_ok=True)
            self._storage.call(path, timeout=DOWNLOAD_S, into=into)

        self._retrier.call(f"download {source}", "DownloadError", call)

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes of an object from `start` on; none if the object is
        shorter.
        """
        bucket, name = split_uri(uri)
        path = f"/storage/v1/b/{_quote(bucket)}/o/{_quote(name)}?alt=media"

        def call() -> bytes:
            try:
                response = self._storage.call(
                    path, timeout=DOWNLOAD_S, range_header=f"bytes={start}-{start + length - 1}"
                )
            except HttpError as error:
                if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return b""
                raise
            return response.body

        return self._retrier.call(f"read {uri}", "DownloadError", call)

    def store_text(self, uri: str, text: bytes) -> None:
        """Write an object, in one try. Raises HttpError, not SetupError."""
        bucket, name = split_uri(uri)
        path = f"/upload/storage/v1/b/{_quote(bucket)}/o?uploadType=media&name={_quote(name)}"
        self._storage.call(
            path, timeout=STORE_S, body=text, content_type="text/plain; charset=utf-8"
        )

    def list_below(self, folder: str) -> Iterator[StoredObject]:
        """Yield all objects below a folder, at any depth. Each thousand of them costs a request."""
        bucket, prefix = split_uri(folder.rstrip("/") + "/")
        token = ""
        while True:
            query = {"prefix": prefix, "fields": "items(name,updated,size),nextPageToken"}
            if token:
                query["pageToken"] = token
            path = f"/storage/v1/b/{_quote(bucket)}/o?{urllib.parse.urlencode(query)}"
            page = self._retrier.call(
                f"list {folder}", "DownloadError", functools.partial(self._get_page, path)
            )
            for item in page.get("items", ()):
                uri = f"gs://{bucket}/{item['name']}"
                yield StoredObject(uri, item["updated"], int(item["size"]))
            token = page.get("nextPageToken", "")
            if not token:
                return

    def is_empty(self, folder: str) -> bool:
        """Return whether there is no object below a folder, by one call in one try.

        Raises HttpError, not SetupError.
        """
        bucket, prefix = split_uri(folder.rstrip("/") + "/")
        query = {"prefix": prefix, "fields": "items(name)", "maxResults": "1"}
        path = f"/storage/v1/b/{_quote(bucket)}/o?{urllib.parse.urlencode(query)}"
        return not self._get_page(path).get("items")

    def _get_page(self, path: str) -> dict[str, Any]:
        page: dict[str, Any] = json.loads(self._storage.call(path, timeout=LIST_S).body)
        return page


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and name of ``gs://BUCKET/NAME``; both are empty for any other URI."""
    if not uri.startswith("gs://"):
        return "", ""
    bucket, _, name = uri[len("gs://") :].partition("/")
    return bucket, name


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")
