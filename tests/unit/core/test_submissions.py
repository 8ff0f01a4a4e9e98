"""Through which door a job came."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.reporting.submission_origin import came
from tests.support.world import World


@pytest.mark.parametrize(
    ("submission", "by", "said"),
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
def test_the_door_is_told_in_words(submission: str, by: str | None, said: str) -> None:
    world = World()
    world.submit()
    assert came(replace(world.job, submission=submission, submitted_by=by)) == said
