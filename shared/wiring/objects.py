"""Cloud Storage, for `upload`, the functions that create jobs, and the command line."""

from __future__ import annotations

from functools import cache

from shared.gcp import clients
from shared.gcp.storage_objects import StorageObjects
from shared.ports import Objects


@cache
def objects() -> Objects:
    return StorageObjects(clients.storage_client())
