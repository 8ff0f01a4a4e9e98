"""Files of SkyPilot and dstack are refused everywhere, with the job file that they mean."""

from __future__ import annotations

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

SKYPILOT = "name: train\nnum_nodes: 2\nworkdir: ~/code\nrun: torchrun train.py\n"
DSTACK = "type: task\nnodes: 4\ncommands:\n  - torchrun train.py\n"


@pytest.mark.parametrize(
    ("text", "title", "command"),
    [
        (SKYPILOT, "a task of SkyPilot", "trainmaster submit job.yaml --folder ~/code"),
        (DSTACK, "a configuration of dstack", "trainmaster submit job.yaml --folder ."),
    ],
    ids=["SkyPilot", "dstack"],
)
def test_file_of_another_tool_is_answered_at_every_entrance(
    text: str, title: str, command: str
) -> None:
    with pytest.raises(InvalidJob) as raised:
        read_document(text.encode(), "task.yaml")
    (found,) = raised.value.problems
    assert title in found.problem
    assert command in found.example
    assert found.example.startswith("trainmaster convert task.yaml > job.yaml && ")


def test_document_that_skipped_the_reader_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(parse_document(SKYPILOT.encode(), "task.yaml"), default_job_id="task")
    assert raised.value.problems[0].example == "trainmaster convert task.yaml > job.yaml"


@pytest.mark.parametrize("text", ["run: 3\n", "type: task\n", "run: python train.py\n"])
def test_other_file_is_read_as_a_job_file(text: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(read_document(text.encode(), "task.yaml"), default_job_id="task")
    assert "SkyPilot" not in str(raised.value)
    assert "dstack" not in str(raised.value)
