"""The Objects port in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.ports import BucketForbiddenError, CreatedObject, ObjectForbiddenError


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    generation: int
    created_at: datetime


class MemoryObjects:
    """Adapter of `ports.Objects` and `ports.ObjectTimes`: objects of Cloud Storage, by
    `gs://BUCKET/NAME`.

    Generations, which identify the contents of an object, count up from 1 over all objects.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, _Object] = {}
        self._generation = 0
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        """Time at which objects are written."""
        self.forbidden_buckets: set[str] = set()
        """Buckets that may not be read."""
        self.missing_buckets: set[str] = set()
        """Buckets that do not exist."""
        self.places: dict[str, BucketPlace] = {}
        """Places of buckets; every other bucket is in the multi-region US."""

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        """Return the first `max_bytes` of the object; None: it does not exist, or not in this
        generation.
        """
        with self._lock:
            stored = self._objects.get(uri)
        if stored is None or (generation is not None and stored.generation != generation):
            return None
        return stored.data[:max_bytes]

    def generation(self, uri: str) -> int | None:
        """Return the object's generation; None: it does not exist. Raises ObjectForbiddenError."""
        if uri.removeprefix("gs://").partition("/")[0] in self.forbidden_buckets:
            raise ObjectForbiddenError(uri)
        with self._lock:
            stored = self._objects.get(uri)
        return stored.generation if stored else None

    def bucket_place(self, bucket: str) -> BucketPlace | None:
        """Return where the bucket is; None: it does not exist. Raises BucketForbiddenError."""
        if bucket in self.forbidden_buckets:
            raise BucketForbiddenError(bucket)
        if bucket in self.missing_buckets:
            return None
        return self.places.get(bucket, BucketPlace("US"))

    def write(self, uri: str, data: bytes, *, content_type: str) -> int:
        """Create or replace the object, and return its generation."""
        with self._lock:
            self._generation += 1
            self._objects[uri] = _Object(data, self._generation, self.clock())
            return self._generation

    def delete(self, uri: str) -> None:
        """Delete the object, if it exists."""
        with self._lock:
            self._objects.pop(uri, None)

    def created(self, directory: str, limit: int) -> tuple[CreatedObject, ...]:
        """Return at most `limit` objects below the directory, by name, with size and time of
        creation.

        Raises BucketForbiddenError.
        """
        bucket = directory.removeprefix("gs://").partition("/")[0]
        if bucket in self.forbidden_buckets:
            raise BucketForbiddenError(bucket)
        prefix = f"{directory.rstrip('/')}/"
        with self._lock:
            uris = sorted(uri for uri in self._objects if uri.startswith(prefix))
            found = [(uri, self._objects[uri]) for uri in uris[:limit]]
        return tuple(
            CreatedObject(uri.removeprefix(f"gs://{bucket}/"), stored.created_at, len(stored.data))
            for uri, stored in found
        )
