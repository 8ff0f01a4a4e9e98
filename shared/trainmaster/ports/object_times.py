"""When the objects of a directory in Cloud Storage were created."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


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
        """Return the objects below `gs://bucket/directory`, at most `limit`, in the order of their names.

        Costs one call per 1,000 objects. A missing bucket has no objects. Raises BucketForbiddenError.
        """
        ...
