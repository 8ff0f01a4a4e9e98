"""Problems of a document that cannot be parsed: they concern the whole document, and say where in it."""

from __future__ import annotations

from typing import Final

from trainmaster.jobspec.problems import ROOT, InvalidJob, Problem
from trainmaster.jobspec.reading.json_limits import DEPTH_MAX

JOB_EXAMPLE: Final = "jobId: digits_1, trainingInput: {region: us-central1, …}"


def invalid(problem: str, example: str) -> InvalidJob:
    return InvalidJob([Problem(ROOT, problem, example)])


def too_deep(where: str) -> InvalidJob:
    return invalid(f"{where}: nested more than {DEPTH_MAX} levels deep", "trainingInput: {args: []}")


def line_and_column(before: str) -> tuple[int, int]:
    """Return the place, counted from 1, that follows this text."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
