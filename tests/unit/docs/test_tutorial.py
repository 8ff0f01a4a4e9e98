"""Programs, job files and commands of the tutorial and the how-to pages are valid.

tests/e2e/pages runs the tutorial as it is printed.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import with_default_region
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.wiring.folder_checks import check_folder, with_chosen_runtime
from trainmaster.wiring.folders import job_of_folder

PAGES = Path(__file__).parents[3] / "docs"
PAGE = (PAGES / "tutorial.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page)


def job_file(text: str, command: Sequence[str]) -> dict[str, Any]:
    """Return the job file as `submit --folder` completes it."""
    document: dict[str, Any] = dict(parse_document(text.encode(), "job.yaml"))
    training = {"region": "us-central1", **document["trainingInput"]}
    return job_of_folder({"jobId": "waves_1", **document, "trainingInput": training}, command)


def commands(page: str = PAGE) -> list[list[str]]:
    """Return the commands behind `--` that a page submits, as words."""
    lines = [
        line for block in blocks("sh", page) for line in block.replace("\\\n", " ").splitlines()
    ]
    parts = [line.partition(" -- ")[2].partition(" || ")[0].split(" #")[0] for line in lines]
    return [shlex.split(part) for part in parts if part]


@pytest.mark.parametrize("name", ["tutorial.md", "from-torchrun.md"])
def test_job_files_and_commands_of_a_page_are_accepted(name: str) -> None:
    page = (PAGES / name).read_text(encoding="utf-8")
    assert commands(page)
    for text in blocks("yaml", page):
        for command in commands(page):
            accept(job_file(text, command), default_job_id=None)


def test_folder_of_the_tutorial_has_nothing_to_refuse(tmp_path: Path) -> None:
    (program,) = blocks("python")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    parsed = parse_document(blocks("yaml")[0].encode(), "job.yaml")
    job = with_default_region({"jobId": "waves_1", **parsed}, "us-central1")
    for command in commands():
        chosen, reason = with_chosen_runtime(job, tmp_path, command)
        assert reason.startswith("runtime: pytorch-2.13, because train.py:")
        assert check_folder(chosen, tmp_path, command) == []


def test_first_line_of_the_readme_needs_no_more_than_a_folder() -> None:
    first = blocks("sh", (PAGES.parent / "README.md").read_text(encoding="utf-8"))[0]
    command = first.partition(" -- ")[2].partition("#")[0].split()
    job = {"jobId": "own_1", "trainingInput": {"region": "us-central1"}}
    accept(job_of_folder(job, command), default_job_id=None)


@pytest.mark.parametrize(
    "name", ["from-torchrun.md", "checkpoints.md", "save-on-notice.md", "python.md"]
)
def test_programs_of_a_page_are_python(name: str) -> None:
    programs = blocks("python", (PAGES / name).read_text(encoding="utf-8"))
    assert programs
    for program in programs:
        ast.parse(program)


def test_program_has_the_arguments_that_the_commands_pass() -> None:
    (program,) = blocks("python")
    flags = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    passed = {word for command in commands() for word in command if word.startswith("--")}
    assert passed == {"--checkpoint", "--epochs"} <= flags
