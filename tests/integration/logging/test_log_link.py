"""The link to the log in the message of a failed job."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.presentation.job_view import job_view

WORKER = ReplicaId(TaskType.WORKER, 0)


def test_message_of_failed_job_links_to_its_log_but_stored_message_does_not() -> None:
    world = World()
    world.start_running()
    world.exit_program(WORKER, status=127)
    world.deliver()
    world.check()
    stored = world.job.error_message
    assert stored is not None
    shown = job_view(world.job, project="my-project")["errorMessage"]
    assert shown.startswith(stored)
    text, _, address = shown.removeprefix(stored).partition("https://")
    assert text == "\n\nTo find out more about why your job exited please check the logs: "
    query = parse_qs(urlsplit(address).query)
    assert query == {
        "project": ["my-project"],
        "resource": ["ml_job/job_id/digits_1"],
        "advancedFilter": ['resource.type="ml_job"\nresource.labels.job_id="digits_1"'],
    }
    assert job_view(world.job)["errorMessage"] == stored
