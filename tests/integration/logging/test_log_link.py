"""Where a failed job's message sends its reader."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from shared.core.model.replica_id import ReplicaId, TaskType
from shared.presentation.job_view import job_view
from tests.support.world import World

WORKER = ReplicaId(TaskType.WORKER, 0)


def test_a_failed_jobs_message_ends_with_the_address_of_its_log_and_what_is_stored_does_not() -> None:
    world = World()
    world.running()
    world.fail(WORKER, status=127)
    world.check()
    stored = world.job.error_message
    assert stored is not None
    shown = job_view(world.job, project="my-project")["errorMessage"]
    assert shown.startswith(stored)
    words, _, address = shown.removeprefix(stored).partition("https://")
    assert words == "\n\nTo find out more about why your job exited please check the logs: "
    asked = parse_qs(urlsplit(address).query)
    assert asked == {
        "project": ["my-project"],
        "resource": ["ml_job/job_id/digits_1"],
        "advancedFilter": ['resource.type="ml_job"\nresource.labels.job_id="digits_1"'],
    }
    assert job_view(world.job)["errorMessage"] == stored
