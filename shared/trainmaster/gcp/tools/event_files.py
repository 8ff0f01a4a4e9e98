"""Listing and reading the event files of jobs on Cloud Storage, for `trainmaster tensorboard`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.api_core import exceptions
from google.cloud.storage import Client

from trainmaster.errors import PermanentError
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.retries import CALL
from trainmaster.gcp.storage_objects import read_part

FIELDS: Final = "items(name,size,generation,crc32c),nextPageToken"
"""The fields of the response that are read; Cloud Storage sends no others."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An object in Cloud Storage, as it was when the folder was listed."""

    uri: str
    size: int
    """In bytes."""
    generation: int
    """Number of this content of the object; an object that is replaced gets another one."""
    crc32c: str
    """Checksum of the whole, in base64, as Cloud Storage has it."""


class EventFiles:
    """Objects below folders, by `gs://BUCKET/…` URI. Thread-safe, as its client is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, folder: str) -> Iterator[StoredFile]:
        """Yield all objects below `gs://BUCKET/FOLDER/`.

        Raises PermanentError if there is no such bucket, or no permission, and TemporaryError if
        Cloud Storage does not answer.
        """
        bucket, _, prefix = folder.removeprefix("gs://").partition("/")
        with google_errors(f"list {folder}"):
            try:
                for blob in self._client.list_blobs(bucket, prefix=prefix, fields=FIELDS, **CALL):
                    yield StoredFile(
                        f"gs://{bucket}/{blob.name}", blob.size, blob.generation, blob.crc32c
                    )
            except exceptions.NotFound:
                raise PermanentError(f"there is no bucket {bucket}") from None

    def read(self, file: StoredFile, start: int) -> bytes | None:
        """Return the content of this generation from byte `start`.

        None: it has been replaced or deleted.
        """
        return read_part(self._client, file.uri, file.generation, start)
