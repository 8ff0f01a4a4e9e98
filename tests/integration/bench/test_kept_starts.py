"""The harness of `make bench-kept`: a figure is of a job that did what its row says.

A measurement runs five jobs, one after another: on new machines; on kept ones with the same
program, with an edited one, and with changed requirements; and with another runtime, which the kept
machines do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.kept_machines import Bench, measure_starts
from bench.peers.run import NotMeasured
from bench.report import OURS

TAKES = "14:17:03  The job takes 1 kept machine of kept_1 in us-central1-a."
RUNTIME = (
    "14:20:03  No kept machines fit. Of kept_4: the runtime is scikit-learn, and that of this job"
    " tensorflow. The job is admitted."
)
AS_EXPECTED = ["", TAKES, TAKES, TAKES, RUNTIME]
"""What `trainmaster why` says of the machines of the five jobs; empty: nothing."""
JOBS = len(AS_EXPECTED)


@dataclass(slots=True)
class Scripted(Bench):
    """Jobs that choose their machines as a list says."""

    choices: list[str] = field(default_factory=list)
    programs: list[dict[str, Any]] = field(default_factory=list)
    kept: bool = True

    def run_program(self, **program: Any) -> tuple[str, float]:
        self.programs.append(program)
        return f"kept_{len(self.programs)}", float(len(self.programs))

    def choice(self, job_id: str) -> str:
        return self.choices[int(job_id.removeprefix("kept_")) - 1]

    def release_all(self) -> None:
        self.kept = False


def scripted(choices: list[str], tmp_path: Path) -> Scripted:
    return Scripted({}, "bucket", tmp_path, choices=choices)


def test_each_row_has_the_figure_of_its_job_and_the_reason_of_a_refusal(tmp_path: Path) -> None:
    bench = scripted(AS_EXPECTED, tmp_path)
    measure_starts(bench, 0)
    assert [row.values[OURS] for row in bench.rows.values()] == [[1.0], [2.0], [3.0], [4.0], [5.0]]
    *_, refused = bench.rows.values()
    assert refused.cell(OURS) == (
        "5 (the runtime is scikit-learn, and that of this job tensorflow)"
    )
    assert not bench.kept, "the next round must begin without kept machines"


def test_only_the_second_job_has_the_program_of_the_one_before(tmp_path: Path) -> None:
    bench = scripted(2 * AS_EXPECTED, tmp_path)
    measure_starts(bench, 0)
    measure_starts(bench, 1)
    edits = [program["edit"] for program in bench.programs]
    for first, second, *others in (edits[:JOBS], edits[JOBS:]):
        assert first == second
        assert len({first, *others}) == 1 + len(others)
    assert set(edits[:JOBS]).isdisjoint(edits[JOBS:])
    changed = [bool(program.get("requirements")) for program in bench.programs[:JOBS]]
    assert changed == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("number", "choice"),
    [
        (0, TAKES),
        (1, "14:20:03  No kept machines fit. Of kept_1: none of its VMs runs."),
        (3, ""),
        (4, TAKES),
        (4, "14:20:03  No machines are kept."),
    ],
)
def test_job_that_did_something_else_has_no_figure(
    number: int, choice: str, tmp_path: Path
) -> None:
    choices = [*AS_EXPECTED]
    choices[number] = choice
    bench = scripted(choices, tmp_path)
    with pytest.raises(NotMeasured, match=f"kept_{number + 1}"):
        measure_starts(bench, 0)
    assert len(bench.rows) == number
