"""Cloud Storage, for `upload`, the functions that create jobs, and the command line."""

from __future__ import annotations

from functools import cache

from trainmaster.gcp import clients
from trainmaster.gcp.retries import CALL_S
from trainmaster.gcp.storage_objects import StorageObjects


@cache
def objects(deadline_s: float = CALL_S) -> StorageObjects:
    """Return the objects of Cloud Storage, by URI. `deadline_s`: longest time of a call, in
    seconds, with its retries.
    """
    return StorageObjects(clients.storage_client(), deadline_s)
