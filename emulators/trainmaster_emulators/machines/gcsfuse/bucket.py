"""Calls of Cloud Storage's JSON API, with the errors of gcsfuse. A path is `BUCKET/NAME`."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import IO, Any, Final

RETRY_S: Final = 60.0
"""Time for which a call is repeated while Cloud Storage does not answer.

The real program repeats it for longer.
"""
PAUSE_S: Final = 0.2
"""Pause before a call is repeated."""
PIECE_BYTES: Final = 1 << 20
"""Bytes of a file that are read, and sent, at a time."""
ERRORS: Final = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 412: errno.ESTALE}
"""HTTP status → number of the error. Source: gcsfuse's internal/fs/wrappers/error_mapping.go."""


@dataclass(frozen=True)
class Entry:
    """A file or folder in Cloud Storage."""

    is_folder: bool
    size: int = 0
    generation: str = "0"
    """Number of the object's content; "0": there is no object."""
    modified: float = 0.0
    """Seconds since 1970."""


class Bucket:
    """All buckets of an endpoint. Each method raises OSError with the number that gcsfuse uses."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(
        self,
        method: str,
        path: str,
        body: Callable[[], Iterable[bytes]] | None = None,
        **headers: str,
    ) -> bytes:
        """Return the body of the response. `body`: returns the parts of the request's body; it is
        called again when the call is repeated.
        """
        until = time.monotonic() + RETRY_S
        while True:
            data = body() if body else None
            url = self._endpoint + path
            # The endpoint is the stack's.
            request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
            try:
                with self._opener.open(request, timeout=RETRY_S) as response:
                    return bytes(response.read())
            except urllib.error.HTTPError as error:
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > until:
                    raise OSError(
                        ERRORS.get(error.code, errno.EIO), f"{method} {path}: HTTP {error.code}"
                    ) from error
            except OSError as error:
                if time.monotonic() > until:
                    raise OSError(errno.EIO, f"{method} {path}: {error}") from error
            time.sleep(PAUSE_S)

    def stat(self, path: str) -> Entry:
        """Return the object of this path; without one, the folder that some objects are in."""
        _, _, name = path.partition("/")
        if name:
            with contextlib.suppress(FileNotFoundError):
                return entry_of(json.loads(self.call("GET", object_path(path))))
        objects, _ = next(self.pages(path, limit=1))
        if name and not objects:
            raise FileNotFoundError(errno.ENOENT, path)
        return Entry(is_folder=True)

    def pages(
        self, folder: str, delimiter: str = "", limit: int = 1000
    ) -> Iterator[tuple[list[Any], list[str]]]:
        """Yield the objects below a folder, and, with a delimiter, the names of its folders."""
        bucket, _, name = folder.partition("/")
        query = {
            "prefix": f"{name}/" if name else "",
            "delimiter": delimiter,
            "maxResults": str(limit),
        }
        while True:
            listed = urllib.parse.urlencode({key: value for key, value in query.items() if value})
            page = json.loads(self.call("GET", f"/storage/v1/b/{bucket}/o?{listed}"))
            yield page.get("items", []), page.get("prefixes", [])
            if "nextPageToken" not in page:
                return
            query["pageToken"] = page["nextPageToken"]

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return at most `size` bytes of the object, from byte `offset` on."""
        return self.call(
            "GET", object_path(path) + "?alt=media", Range=f"bytes={offset}-{offset + size - 1}"
        )

    def write(self, path: str, content: IO[bytes], generation: str) -> Entry:
        """Upload if the object has this generation. fake-gcs-server checks it in multipart uploads
        only.
        """
        bucket, _, name = path.partition("/")
        boundary = uuid.uuid4().hex
        size = os.fstat(content.fileno()).st_size
        metadata = json.dumps({"name": name})
        head = (
            f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{metadata}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        ).encode()
        end = f"\r\n--{boundary}--\r\n".encode()

        def body() -> Iterator[bytes]:
            content.seek(0)
            yield head
            yield from iter(lambda: content.read(PIECE_BYTES), b"")
            yield end

        headers = {
            "Content-Type": f"multipart/related; boundary={boundary}",
            "Content-Length": str(len(head) + size + len(end)),
        }
        url = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&ifGenerationMatch={generation}"
        return entry_of(json.loads(self.call("POST", url, body, **headers)))

    def move(self, old: str, new: str) -> None:
        """Copy the object in Cloud Storage, and delete the first one."""
        target = object_path(new).removeprefix("/storage/v1")
        self.call("POST", f"{object_path(old)}/rewriteTo{target}", lambda: [b"{}"])
        self.delete(old)

    def delete(self, path: str) -> None:
        self.call("DELETE", object_path(path))


def object_path(path: str) -> str:
    """Return the path of the object's resource in the API."""
    bucket, _, name = path.partition("/")
    return f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"


def entry_of(item: Any) -> Entry:
    """Return the entry of an object resource of the API."""
    modified = datetime.fromisoformat(item["updated"]).timestamp()
    return Entry(
        is_folder=False,
        size=int(item["size"]),
        generation=str(item["generation"]),
        modified=modified,
    )
