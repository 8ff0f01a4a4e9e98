"""Worlds of many jobs, for lists of them."""

from __future__ import annotations

from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.flows.job_creation import intake
from trainmaster.flows.user_requests import cancel_job

TEAMS = ("vision", "speech")
USERS = ("anna@example.com", "boris@example.com", "carla@example.com")


def world_of_jobs(count: int) -> World:
    """Return a world of jobs of two teams and three users, of which every fourth is cancelled, the
    oldest first.
    """
    world = World()
    for number in range(1, count + 1):
        add_job(world, number)
    return world


def add_job(world: World, number: int) -> None:
    """Submit the job of this number, and cancel it if the number is a multiple of four."""
    job_id = f"digits_{number:04d}"
    world.wait(1)
    document = {"jobId": job_id, **a_spec(), "labels": {"team": TEAMS[number % 2]}}
    origin = intake.Origin(through_api=True, submitted_by=USERS[number % 3])
    submission = intake.Submission(
        document, f"api:{number}", world.now, authorize=lambda _: None, origin=origin
    )
    intake.create_job(submission, world.deps)
    if number % 4 == 0:
        cancel_job(job_id, "anna", world.deps)
