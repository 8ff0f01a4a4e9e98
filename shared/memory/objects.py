"""The Objects port in memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    generation: int


class MemoryObjects:
    """See `shared.ports.Objects`. Generations count up from 1, over all objects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, _Object] = {}
        self._generation = 0

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        with self._lock:
            stored = self._objects.get(uri)
        if stored is None or (generation is not None and stored.generation != generation):
            return None
        return stored.data[:max_bytes]

    def write(self, uri: str, data: bytes, *, content_type: str) -> None:
        with self._lock:
            self._generation += 1
            self._objects[uri] = _Object(data, self._generation)

    def delete(self, uri: str) -> None:
        with self._lock:
            self._objects.pop(uri, None)

    def generation(self, uri: str) -> int:
        """Return the current generation of an existing object."""
        with self._lock:
            return self._objects[uri].generation
