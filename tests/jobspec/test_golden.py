"""Right jobs and what they mean, exactly, as text files to read: whole jobs, and every machine there is to ask for."""

from __future__ import annotations

from typing import Final

import pytest

from tests.jobspec.golden_text import GOLDEN, JOB_FILES, MACHINES, machine_line, plan_text
from tests.jobspec.machine_asks import asks

ASKS: Final = asks()
LINES: Final = dict(line.split(" = ", 1) for line in MACHINES.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", JOB_FILES)
def test_a_job_file_means_exactly_its_golden_plan(name: str) -> None:
    assert plan_text(name) == (GOLDEN / f"{name}.plan").read_text(encoding="utf-8")


@pytest.mark.parametrize("ask", ASKS)
def test_who_asks_for_this_machine_gets(ask: str) -> None:
    assert machine_line(ASKS[ask]) == LINES[ask]


def test_the_table_of_machines_has_no_line_that_nobody_asks_for() -> None:
    assert list(LINES) == list(ASKS)
