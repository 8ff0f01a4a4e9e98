"""Packages that checks keep in memory, in place of a bucket: nothing is uploaded."""

from __future__ import annotations

from typing import Final

from trainmaster.core.intake.bucket_places import BucketPlace

STAGED_BUCKET: Final = "bucket-of-the-installation"
"""Stands for a bucket that is not known."""


class StagedObjects:
    """Objects of this process, by `gs://BUCKET/NAME`. Adapter of `trainmaster.ports.Objects`.

    Nothing replaces one of them, so that each has one generation (number of its content).
    """

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        """Return at most the first `max_bytes` of the object, or None if it does not exist."""
        del generation
        data = self._data.get(uri)
        return None if data is None else data[:max_bytes]

    def generation(self, uri: str) -> int | None:
        """Return the number of the object's current version, or None if it does not exist.

        Raises ObjectForbiddenError.
        """
        return 1 if uri in self._data else None

    def bucket_place(self, bucket: str) -> BucketPlace | None:
        """Return a place that every bucket could have: its bucket need not exist yet."""
        del bucket
        return BucketPlace("US")

    def write(self, uri: str, data: bytes, *, content_type: str) -> int:
        """Create or replace the object, and return its generation."""
        del content_type
        self._data[uri] = data
        return 1

    def delete(self, uri: str) -> None:
        """Delete the object if it exists."""
        self._data.pop(uri, None)
