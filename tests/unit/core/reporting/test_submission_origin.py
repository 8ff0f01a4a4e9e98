"""How a job was submitted, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.reporting.submission_origin import describe_origin
from tests.support.world import World


@pytest.mark.parametrize(
    ("submission", "by", "origin"),
    [
        ("gs://bucket/jobs/digits.yaml#17", None, "by the upload of gs://bucket/jobs/digits.yaml"),
        ("api:4711", "anna@example.com", "through the API, by anna@example.com"),
        ("api:4711", None, "through the API"),
        ("cli:4711", None, "by trainmaster submit"),
        ("schedule:nightly", None, "by the schedule nightly"),
        ("message:4711", None, "as a message to the topic"),
        ("pipeline-7", None, "as a message to the topic"),
    ],
)
def test_origin_is_described_from_the_submissions_source(submission: str, by: str | None, origin: str) -> None:
    world = World()
    world.submit()
    assert describe_origin(replace(world.job, submission=submission, submitted_by=by)) == origin
