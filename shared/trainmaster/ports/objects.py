"""Cloud Storage objects, and when they were created."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from trainmaster.core.intake.bucket_places import BucketPlace


class ObjectForbiddenError(Exception):
    """The installation's account may not read the object."""


class BucketForbiddenError(Exception):
    """The installation's account may not see the bucket."""


class Objects(Protocol):
    """Objects by `gs://bucket/name` URI. All methods raise TemporaryError for transient errors."""

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        """Return at most the first `max_bytes` of the object, or None if it does not exist.

        With `generation`, read that version of the object; None if it has been replaced or deleted.
        """
        ...

    def generation(self, uri: str) -> int | None:
        """Return the number of the object's current version, or None if it does not exist.

        Raises ObjectForbiddenError.
        """
        ...

    def bucket_place(self, bucket: str) -> BucketPlace | None:
        """Return where the bucket keeps its objects, or None if there is no such bucket.

        Raises BucketForbiddenError.
        """
        ...

    def write(self, uri: str, data: bytes, *, content_type: str) -> int:
        """Create or replace the object, and return its generation."""
        ...

    def delete(self, uri: str) -> None:
        """Delete the object if it exists.

        Without permission the object stays, and a warning is logged.
        """
        ...


@dataclass(frozen=True, slots=True)
class CreatedObject:
    """An object in Cloud Storage, and when it was written."""

    name: str
    """Name within the bucket."""
    created_at: datetime
    """When its current version was written."""
    size: int
    """Bytes."""


class ObjectTimes(Protocol):
    """Creation times of objects. All methods raise TemporaryError for transient errors."""

    def created(self, directory: str, limit: int) -> tuple[CreatedObject, ...]:
        """Return the objects below `gs://bucket/directory`, at most `limit`, in the order of their
        names.

        Costs one call per 1,000 objects. A missing bucket has no objects. Raises
        BucketForbiddenError.
        """
        ...
