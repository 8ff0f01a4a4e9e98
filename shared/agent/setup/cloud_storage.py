"""Objects of Cloud Storage, listed and downloaded as this VM."""

from __future__ import annotations

import functools
import json
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.agent.setup.failure import failed

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from shared.agent.http.metadata_server import Google
    from shared.agent.setup.failure import Patience

FETCH_S = 60.0  # without a byte
LIST_S = 10.0


@dataclass(frozen=True)
class Stored:
    """``updated``: RFC 3339, as Cloud Storage writes it: later is greater."""

    uri: str
    updated: str
    size: int

    @property
    def name(self) -> str:
        """What comes after the last slash."""
        return self.uri.rsplit("/", 1)[-1]


class Objects:
    """Each call raises SetupError, after trying again what may pass."""

    def __init__(self, storage: Google, patience: Patience) -> None:
        self._storage = storage
        self._patience = patience

    def fetch(self, uri: str, into: Path) -> None:
        """Folders are made where there are none."""
        bucket, name = parts_of(uri)
        if not bucket or not name:
            raise failed("DownloadError", f"{uri} is no object in Cloud Storage", transient=False)
        path = f"/storage/v1/b/{_quoted(bucket)}/o/{_quoted(name)}?alt=media"

        def call() -> None:
            into.parent.mkdir(parents=True, exist_ok=True)
            self._storage.call(path, timeout=FETCH_S, into=into)

        self._patience.ask(f"download {uri}", "DownloadError", call)

    def below(self, folder: str) -> list[Stored]:
        """All of them, however deep."""
        bucket, prefix = parts_of(folder.rstrip("/") + "/")
        found: list[Stored] = []
        token = ""
        while True:
            query = {"prefix": prefix, "fields": "items(name,updated,size),nextPageToken"}
            if token:
                query["pageToken"] = token
            path = f"/storage/v1/b/{_quoted(bucket)}/o?{urllib.parse.urlencode(query)}"
            page = self._patience.ask(f"list {folder}", "DownloadError", functools.partial(self._page, path))
            found += [
                Stored(f"gs://{bucket}/{each['name']}", each["updated"], int(each["size"]))
                for each in page.get("items", ())
            ]
            token = page.get("nextPageToken", "")
            if not token:
                return found

    def _page(self, path: str) -> dict[str, Any]:
        page: dict[str, Any] = json.loads(self._storage.call(path, timeout=LIST_S).body)
        return page


def parts_of(uri: str) -> tuple[str, str]:
    """Bucket and name of ``gs://BUCKET/NAME``; empty where it is none."""
    if not uri.startswith("gs://"):
        return "", ""
    bucket, _, name = uri[len("gs://") :].partition("/")
    return bucket, name


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
