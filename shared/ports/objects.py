"""Cloud Storage objects."""

from __future__ import annotations

from typing import Protocol


class Objects(Protocol):
    """Objects by `gs://bucket/name` URI. All methods raise TemporaryError for failures that may pass."""

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        """Return at most the first `max_bytes` of the object, or None if it does not exist.

        With `generation`, read that version of the object; None if it has been replaced or deleted.
        """
        ...

    def write(self, uri: str, data: bytes, *, content_type: str) -> None:
        """Create or replace the object."""
        ...

    def delete(self, uri: str) -> None:
        """Delete the object. Idempotent."""
        ...
