"""Files of SkyPilot and dstack are answered with the command that means the same."""

from __future__ import annotations

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

SKYPILOT = """
name: train
num_nodes: 2
workdir: ~/code
resources:
  accelerators: A100:8
setup: pip install -r requirements.txt
run: torchrun train.py
"""
DSTACK = """
type: task
nodes: 4
commands:
  - pip install -r requirements.txt
  - torchrun train.py
"""
MACHINES = (
    "--scale-tier custom --master-machine-type n1-standard-4 --worker-machine-type n1-standard-4"
)


@pytest.mark.parametrize(
    ("text", "problem", "command"),
    [
        (
            SKYPILOT,
            "this is a task of SkyPilot, and no job file",
            (
                f"trainmaster submit --folder '~/code' {MACHINES} --worker-count 1 --"
                " torchrun train.py and its packages in requirements.txt"
            ),
        ),
        (
            DSTACK,
            "this is a configuration of dstack, and no job file",
            (
                f"trainmaster submit --folder . {MACHINES} --worker-count 3 -- bash run.sh"
                " (with its commands in run.sh)"
            ),
        ),
        (
            "run: python train.py\nworkdir: .\n",
            "this is a task of SkyPilot, and no job file",
            "trainmaster submit --folder . -- python train.py",
        ),
    ],
    ids=["SkyPilot", "dstack", "one node"],
)
def test_file_of_another_tool_gets_one_answer(text: str, problem: str, command: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(parse_document(text.encode(), "task.yaml"), default_job_id="task")
    (found,) = raised.value.problems
    assert problem in found.problem
    assert found.example == command


@pytest.mark.parametrize("text", ["run: 3\n", "type: task\n", "run: python train.py\n"])
def test_other_file_is_read_as_a_job_file(text: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(parse_document(text.encode(), "task.yaml"), default_job_id="task")
    assert "SkyPilot" not in str(raised.value)
    assert "dstack" not in str(raised.value)
