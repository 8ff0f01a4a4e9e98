"""Wrong arguments, documents and addresses: each is an error that names the argument, and
nothing is done.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import yaml

from tests.unit.cli.mcp.sessions import EXAMPLE, call, document, tools
from trainmaster_local.testing import Installation


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("submit", {"document": "jobId: [unclosed"}, "document"),
        ("submit", {"document": ""}, "document"),
        (
            "submit",
            {"document": yaml.safe_dump({"jobId": "digits_1", "trainingInput": {}})},
            "Field: trainingInput.region Error: ",
        ),
        ("submit", {"document": yaml.safe_dump(EXAMPLE)}, "Field: jobId Error: is required"),
        ("submit", {"document": document(labels=["a"])}, "labels"),
        ("submit", {"document": document(cap="a lot")}, "must be an amount above 0"),
        ("submit", {}, "document"),
        ("check", {"document": "a: &a [*a]"}, "document"),
        ("check", {"document": document(), "continuation": -1}, "continuation"),
        ("status", {"job": "nobody"}, "was not found"),
        ("why", {"job": "../jobs/nobody"}, ""),
        ("logs", {"job": "nobody", "minutes": -1}, "minutes"),
        ("cancel", {"job": "locations/us-central1/customJobs/17"}, "was not found"),
    ],
)
@pytest.mark.parametrize("budget", ["", "agents:20USD"])
def test_wrong_input_is_an_error_without_a_traceback(
    installation: Installation,
    name: str,
    arguments: Mapping[str, object],
    expected: str,
    budget: str,
) -> None:
    text, is_error = call(tools(installation, budget), name, **arguments)
    assert is_error
    assert expected in text
    assert "Traceback" not in text
    assert "pydantic" not in text
    assert "type=" not in text
    assert not installation._store.recent_jobs(1)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("submit", {}, "document: Field required"),
        ("submit", {"document": 5}, "document: Input should be a valid string"),
        (
            "logs",
            {"job": "a", "minutes": -1},
            "minutes: Input should be greater than or equal to 0",
        ),
        ("why", {"jobs": "a"}, "why has no jobs, but job, continuation"),
        (
            "submit",
            {"document": document(), "dry_run": True},
            "submit has no dry_run, but document",
        ),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_done(
    installation: Installation, name: str, arguments: Mapping[str, object], expected: str
) -> None:
    text, is_error = call(tools(installation), name, **arguments)
    assert is_error
    assert text.startswith(expected)
    assert "\n" not in text
    assert not installation._store.recent_jobs(1)


def test_wrong_job_id_names_the_job_that_is_similar(installation: Installation) -> None:
    call(tools(installation), "submit", document=document())
    (job,) = installation._store.recent_jobs(1)
    for tool in ("status", "why", "logs", "cancel"):
        text, is_error = call(tools(installation), tool, job=f"{job.job_id}x")
        assert is_error
        assert text.endswith(f"did you mean {job.job_id}?")


def test_a_tool_that_does_not_exist_is_an_error(installation: Installation) -> None:
    assert call(tools(installation), "delete", job="a") == ("Unknown tool: delete", True)


@pytest.mark.parametrize(
    "address", ["../x", "", "jobs/../../other/jobs/a", "a/b", "a?b", "jobs/", "jobs/a:cancel", "*"]
)
def test_address_that_is_none_names_the_argument(installation: Installation, address: str) -> None:
    for tool in ("why", "logs", "cancel", *(["status"] if address else [])):
        text, is_error = call(tools(installation), tool, job=address)
        assert is_error
        assert f"job: {address!r} is no job id" in text


def test_job_of_another_project_is_not_this_projects_job_of_the_same_name(
    installation: Installation,
) -> None:
    for tool in ("why", "logs", "cancel", "status"):
        text, is_error = call(tools(installation), tool, job="projects/staging/jobs/digits_1")
        assert is_error
        assert "is a job of the project staging" in text
