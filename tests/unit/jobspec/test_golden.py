"""Valid jobs and their exact plans as readable text: whole job files, and a job for
every machine.
"""

from __future__ import annotations

import contextlib
import json
from typing import Final

import pytest

from tests.unit.jobspec.golden_text import GOLDEN, JOB_FILES, MACHINES, machine_line, plan_text
from tests.unit.jobspec.machine_requests import machine_requests
from trainmaster.core.rules.admission_queue import RESOURCES, resource_needs
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

REQUESTS: Final = machine_requests()
LINES: Final = dict(
    line.split(" = ", 1) for line in MACHINES.read_text(encoding="utf-8").splitlines()
)


@pytest.mark.parametrize("name", JOB_FILES)
def test_job_file_has_golden_plan(name: str) -> None:
    assert plan_text(name) == (GOLDEN / f"{name}.plan").read_text(encoding="utf-8")


def test_machine_requests_get_the_machines_of_their_golden_lines() -> None:
    lines = {name: machine_line(request) for name, request in REQUESTS.items()}
    assert {name: line for name, line in lines.items() if line != LINES.get(name)} == {}, (
        "compare golden/machines.txt"
    )
    assert list(LINES) == list(lines)


def test_each_resource_that_a_machine_needs_can_be_limited() -> None:
    needed = set()
    for request in REQUESTS.values():
        with contextlib.suppress(InvalidJob):
            needed |= set(resource_needs(accept(request, default_job_id="digits_1").plan))
    assert needed - set(RESOURCES) == set()


@pytest.mark.parametrize("name", JOB_FILES)
def test_message_of_uploaded_file_has_same_plan_as_file(name: str) -> None:
    """The upload function checks a file, adds the job id and forwards it as JSON."""
    document = dict(parse_document((GOLDEN / f"{name}.yaml").read_bytes(), f"{name}.yaml"))
    uploaded = accept(document, default_job_id="from_the_file")
    document.pop("job_id", None)
    message = json.dumps({**document, "jobId": uploaded.job_id}).encode()

    submitted = accept(parse_document(message, "message.json"), default_job_id=None)

    assert (submitted.job_id, submitted.plan) == (uploaded.job_id, uploaded.plan)
