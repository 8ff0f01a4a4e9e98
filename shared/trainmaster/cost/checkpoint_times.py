"""List when objects were written to a job's directory, and keep the listings of ended jobs.

The command line and the console list the directory when a user asks, with the user's own
credentials. Functions never list it: a loss would cost as many calls as the directory has thousands
of objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from cachetools import LRUCache

from trainmaster.core.model.job import Job
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import Plan
from trainmaster.core.reporting.lost_work import WrittenObjects, checkpoints_of, written_objects
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports import BucketForbiddenError, CreatedObject, ObjectTimes

OBJECTS_MAX: Final = 10_000
"""Objects of one listing: ten calls.

Further objects are left out, and the bounds of the lost work state that.
"""
REREAD_AFTER_S: Final = 60.0
"""Time after which the directory of a live job is listed again."""
FINAL_AFTER: Final = timedelta(minutes=10)
"""Time after a job's end from which its directory no longer changes: its VMs are gone."""
CACHED_MAX: Final = 256
"""Jobs whose listings are kept."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects in a job's directory."""

    directory: str
    objects: tuple[CreatedObject, ...]
    is_complete: bool

    @property
    def written_objects(self) -> WrittenObjects:
        """The objects by their names below the directory, with the times of their creation."""
        prefix = f"{self.directory.removeprefix('gs://').partition('/')[2]}/"
        named = ((item.name.removeprefix(prefix), item.created_at) for item in self.objects)
        return written_objects(named, is_complete=self.is_complete)

    @property
    def checkpoints(self) -> tuple[CreatedObject, ...]:
        """Objects that may belong to a checkpoint, in the order of their creation."""
        names = checkpoints_of(item.name for item in self.objects)
        checkpoints = [item for item in self.objects if item.name in names]
        return tuple(sorted(checkpoints, key=lambda item: item.created_at))


class CheckpointTimes:
    """Lists directories of jobs through a cache. Thread-safe: one listing at a time."""

    def __init__(
        self, objects: Callable[[], ObjectTimes], timer: Callable[[], float] = time.monotonic
    ) -> None:
        """`objects` opens Cloud Storage, at the first listing."""
        self._objects = objects
        self._timer = timer
        self._known: LRUCache[str, tuple[float, Listing | Unknown]] = LRUCache(CACHED_MAX)
        self._lock = Lock()

    def listing(self, job: Job, now: datetime) -> Listing | Unknown:
        """Return what the directory of the job contains."""
        directory = directory_of(job.plan)
        if isinstance(directory, Unknown):
            return directory
        with self._lock:
            known = self._known.get(job.job_id)
            if known is not None:
                listed_at, listing = known
                if self._timer() - listed_at < REREAD_AFTER_S:
                    return listing
            listing = self._list(directory)
            is_over = job.ended_at is not None and now - job.ended_at > FINAL_AFTER
            is_final = is_over and isinstance(listing, Listing)
            self._known[job.job_id] = (float("inf") if is_final else self._timer(), listing)
            return listing

    def _list(self, directory: str) -> Listing | Unknown:
        """Return what Cloud Storage lists now; Unknown says why it lists nothing."""
        try:
            objects = self._objects().created(directory, OBJECTS_MAX)
        except BucketForbiddenError:
            return Unknown(
                f"you may not list {directory}: the role Storage Object Viewer is missing"
            )
        except (PermanentError, TemporaryError) as error:
            return Unknown(f"{directory} cannot be listed now: {error}")
        return Listing(directory, objects, len(objects) < OBJECTS_MAX)


def directory_of(plan: Plan) -> str | Unknown:
    """Return the directory in which programs save checkpoints; Unknown: the job names none."""
    if plan.origin.dialect is Dialect.VERTEX:
        field = "baseOutputDirectory"
        directory = plan.origin.output_directory
    else:
        field = "jobDir"
        directory = plan.program.job_dir
    if not directory:
        return Unknown(f"the job has no {field}, so its checkpoints cannot be found")
    if not directory.startswith("gs://"):
        return Unknown(f"{directory} is not in Cloud Storage")
    return directory.rstrip("/")
