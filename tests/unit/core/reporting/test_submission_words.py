"""How a job was submitted, in words.

The source of a submission is the address of an uploaded file, or `kind:id`, or `kind:id/user` with
the name that the user gave.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.support.jobs import a_job, a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.core.model.owner import Owner, owner
from trainmaster.core.model.tuning import TrialOf
from trainmaster.core.reporting.submission_words import describe_submission
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.presentation.job_view import job_view


@pytest.mark.parametrize(
    ("submission", "through_api", "by", "origin"),
    [
        (
            "gs://bucket/jobs/digits.yaml#17",
            False,
            None,
            "by the upload of gs://bucket/jobs/digits.yaml",
        ),
        ("api:4711", True, "anna@example.com", "through the API, by anna@example.com"),
        ("api:4711", True, None, "through the API"),
        ("api:4711", False, None, "as a message to the topic"),
        ("cli:4711", False, None, "by trainmaster submit"),
        (
            "cli:4711/anna@example.com",
            False,
            None,
            "by trainmaster submit, by anna@example.com (unverified)",
        ),
        ("cli:4711/jörg", False, None, "by trainmaster submit, by jörg (unverified)"),
        ("cli:4711/a/b", False, None, "by trainmaster submit"),
        ("cli:4711/anna b\x1b[2J", False, None, "by trainmaster submit"),
        ("cli:4711/" + "a" * 255, False, None, "by trainmaster submit"),
        ("schedule:nightly", False, None, "by the schedule nightly"),
        ("schedule:nightly/anna", False, None, "by the schedule nightly, by anna (unverified)"),
        ("api:4711/anna@example.com", True, None, "through the API"),
        ("message:x/anna@example.com", False, None, "as a message to the topic"),
        (
            "console:4711/anna@example.com",
            False,
            None,
            "in the console, by anna@example.com (unverified)",
        ),
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
    assert describe_submission(job) == origin


@pytest.mark.parametrize(
    "labels", [{}, {"owner": "boris", "submitted_by": "boris"}], ids=["plain", "labelled"]
)
def test_owner_is_that_of_the_first_submission_whatever_the_job_file_says(
    labels: dict[str, str],
) -> None:
    world = World()
    spec = {**a_spec(), "labels": labels, "jobId": world.job_id}
    for user in ("anna@example.com", "boris@example.com"):
        source = f"cli:4711/{user}"
        with suppress(PermanentError):
            submit.handle(json.dumps(spec).encode(), source, world.deps)
    assert owner(world.job) == Owner("anna@example.com", is_verified=False)
    assert job_view(world.job)["trainmaster"]["owner"] == {
        "user": "anna@example.com",
        "verified": False,
    }


def test_owner_of_the_api_is_verified_and_stays_with_trials() -> None:
    job = a_job(
        JobState.QUEUED, through_api=True, submitted_by="anna@example.com", submission="cli:1/boris"
    )
    trial = replace(job, through_api=False, trial_of=TrialOf("digits_1", 1, "accuracy"))
    assert owner(job) == owner(trial) == Owner("anna@example.com", is_verified=True)
    assert owner(replace(job, submitted_by=None)) == Owner()
