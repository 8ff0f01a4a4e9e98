"""Checks of a job file, and of its folder, which are the same in every installation.

`submit --check` imports this module first: a wrong file needs none of Google's clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trainmaster.cli.doctor.findings import Finding, limit, ok, problem
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.program_files.findings import ProgramFinding

SEE: Final = 'see the page "job-format" of the documentation'


def check_file(document: Mapping[str, Any]) -> list[Finding]:
    """Return the problems of the job file, or its substitutions if it has no problem."""
    try:
        spec = accept(document, default_job_id=None)
    except InvalidJob as invalid:
        return [finding_of(found) for found in invalid.problems]
    return [
        ok(f"job file of {spec.job_id}"),
        *(limit(note.text, SEE) for note in spec.plan.origin.substitutions),
    ]


def folder_findings(found: Iterable[ProgramFinding], checked: str = "") -> Iterator[Finding]:
    """Yield the findings of a folder: a problem if the program must fail, else a warning.

    `checked`: what was checked, in words, which is reported if nothing was found.
    """
    is_clean = True
    for finding in found:
        is_clean = False
        report = problem if finding.must_fail else limit
        yield report(finding.problem, finding.remedy)
    if is_clean and checked:
        yield ok(checked)


def finding_of(invalid: Problem) -> Finding:
    """Return the finding that this field is wrong."""
    return problem(f"{invalid.field} {invalid.problem}", f"for example {invalid.example}")
