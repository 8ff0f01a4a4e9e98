"""Right jobs and what they mean, exactly, as text files to read: whole jobs, and every machine there is to ask for."""

from __future__ import annotations

import json
from typing import Final

import pytest

from shared.jobspec import accept, parse_document
from tests.unit.jobspec.golden_text import GOLDEN, JOB_FILES, MACHINES, machine_line, plan_text
from tests.unit.jobspec.machine_requests import machine_requests

ASKS: Final = machine_requests()
LINES: Final = dict(line.split(" = ", 1) for line in MACHINES.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", JOB_FILES)
def test_a_job_file_means_exactly_its_golden_plan(name: str) -> None:
    assert plan_text(name) == (GOLDEN / f"{name}.plan").read_text(encoding="utf-8")


@pytest.mark.parametrize("ask", ASKS)
def test_who_asks_for_this_machine_gets(ask: str) -> None:
    assert machine_line(ASKS[ask]) == LINES[ask]


def test_the_table_of_machines_has_no_line_that_nobody_asks_for() -> None:
    assert list(LINES) == list(ASKS)


@pytest.mark.parametrize("name", JOB_FILES)
def test_the_message_that_submits_a_file_means_the_same_as_the_file(name: str) -> None:
    """An upload is checked, given its id, and sent on as JSON."""
    document = dict(parse_document((GOLDEN / f"{name}.yaml").read_bytes(), f"{name}.yaml"))
    uploaded = accept(document, default_job_id="from_the_file")
    document.pop("job_id", None)
    message = json.dumps({**document, "jobId": uploaded.job_id}).encode()

    submitted = accept(parse_document(message, "message.json"), default_job_id=None)

    assert (submitted.job_id, submitted.plan) == (uploaded.job_id, uploaded.plan)
