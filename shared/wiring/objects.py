"""Cloud Storage: only what reads or writes objects needs it."""

from __future__ import annotations

from functools import cache

from google.cloud import storage

from shared.gcp.storage_objects import StorageObjects
from shared.ports import Objects
from shared.settings import settings


@cache
def objects() -> Objects:
    return StorageObjects(storage.Client(project=settings().project))
