"""Every submission is answered: of the submissions of one job id, one becomes the job and the others are refused."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.core.intake.job_files import ERROR_SUFFIX
from trainmaster.memory.objects import MemoryObjects
from trainmaster.memory.store import MemoryStore
from trainmaster.simulator.invariants.violation import ViolationError


def check_submissions(submissions: Mapping[str, tuple[str, str]], store: MemoryStore, objects: MemoryObjects) -> None:
    """Check that each submission became its job, or was refused, but not both. Called when nothing is in flight.

    `submissions`: see `trainmaster.simulator.world.user_actions.UserActions`. Raises ViolationError.
    """
    refused = {rejection.source for rejection in store.rejections()}
    for source, (job_id, uri) in submissions.items():
        loaded = store.load(job_id)
        is_the_job = loaded is not None and loaded.state.job.submission == source
        is_refused = source in refused or objects.read(uri + ERROR_SUFFIX, max_bytes=1) is not None
        if is_the_job and is_refused:
            raise ViolationError(f"submissions: {source} became the job {job_id} and was refused as well")
        if not is_the_job and not is_refused:
            raise ViolationError(f"submissions: {source} neither became the job {job_id} nor was refused")
