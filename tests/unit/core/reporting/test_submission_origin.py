"""How a job was submitted, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.world import World
from trainmaster.core.reporting.submission_origin import describe_origin


@pytest.mark.parametrize(
    ("submission", "through_api", "by", "origin"),
    [
        ("gs://bucket/jobs/digits.yaml#17", False, None, "by the upload of gs://bucket/jobs/digits.yaml"),
        ("api:4711", True, "anna@example.com", "through the API, by anna@example.com"),
        ("api:4711", True, None, "through the API"),
        ("api:4711", False, None, "as a message to the topic"),
        ("cli:4711", False, None, "by trainmaster submit"),
        ("schedule:nightly", False, None, "by the schedule nightly"),
        ("console:4711/anna@example.com", False, None, "in the console, by anna@example.com (unverified)"),
        ("message:4711", False, None, "as a message to the topic"),
        ("pipeline-7", False, None, "as a message to the topic"),
    ],
)
def test_origin_is_described_from_the_submissions_source(
    submission: str, through_api: bool, by: str | None, origin: str
) -> None:
    world = World()
    world.submit()
    job = replace(world.job, submission=submission, through_api=through_api, submitted_by=by)
    assert describe_origin(job) == origin
