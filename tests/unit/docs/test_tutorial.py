"""docs/tutorial.md and the how-to pages: programs and job files are valid, mistakes get the answers
that are shown.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

PAGES = Path(__file__).parents[3] / "docs"
PAGE = (PAGES / "tutorial.md").read_text(encoding="utf-8")
PACKAGE = "gs://trainmaster-local/waves/trainer-0.0.0.tar.gz"


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page)


def job_file(text: str) -> dict[str, Any]:
    """Return the job file as `submit --package-path` completes it."""
    document: dict[str, Any] = dict(parse_document(text.encode(), "job.yaml"))
    document["trainingInput"] = {**document["trainingInput"], "packageUris": [PACKAGE]}
    return {"jobId": "waves_1", **document}


def test_job_file_and_its_spot_vms_are_accepted() -> None:
    job, spot = blocks("yaml")
    accept(job_file(job), default_job_id=None)
    accept(job_file(f"{job}{spot}"), default_job_id=None)


def test_job_file_of_an_existing_script_is_accepted() -> None:
    (job,) = blocks("yaml", (PAGES / "pytorch-script.md").read_text(encoding="utf-8"))
    accept(job_file(job), default_job_id=None)


@pytest.mark.parametrize(
    "name", ["pytorch-script.md", "checkpoints.md", "save-on-notice.md", "python.md"]
)
def test_programs_of_a_page_are_python(name: str) -> None:
    programs = blocks("python", (PAGES / name).read_text(encoding="utf-8"))
    assert programs
    for program in programs:
        ast.parse(program)


def test_program_has_the_arguments_that_the_commands_pass() -> None:
    (program,) = blocks("python")
    flags = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    passed = [flag for line in blocks("sh") for flag in re.findall(r" -- (--[a-z-]+)", line)]
    assert passed
    assert {*passed, "--job-dir"} <= flags


def test_mistakes_in_the_job_file_get_the_answers_of_the_page() -> None:
    wrong = (
        blocks("yaml")[0]
        .replace("workerCount", "workersCount")
        .replace("pytorch-2.13", "pytorch-2.31")
    )
    with pytest.raises(InvalidJob) as raised:
        accept(job_file(wrong), default_job_id=None)
    assert len(raised.value.problems) == 2
    for problem in raised.value.problems:
        assert f"{problem.field}: {problem.problem}"[:100] in PAGE
