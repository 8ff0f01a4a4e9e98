"""Cloud Storage: only what reads or writes objects needs it."""

from __future__ import annotations

from functools import cache

from shared.gcp.storage_objects import StorageObjects
from shared.ports import Objects


@cache
def objects() -> Objects:
    return StorageObjects()
