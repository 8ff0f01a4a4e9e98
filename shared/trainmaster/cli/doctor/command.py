"""`trainmaster doctor`: check an installation, and show how to fix each problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from trainmaster.cli import submit_options
from trainmaster.cli.installation import choose_installation, settings_problems, use_installation
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, print_json, say
from trainmaster.settings import settings

if TYPE_CHECKING:
    from trainmaster.cli.doctor.findings import Finding
    from trainmaster.ports import Objects

Region = Annotated[
    str | None,
    typer.Option(metavar="REGION", help="Region of the jobs, or of a manifest that names none."),
]
BeforeInstall = Annotated[
    bool,
    typer.Option(
        "--before-install", help="Check only what can make `terraform apply` or the first job fail."
    ),
]
JobFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[JOB.yaml]", dir_okay=False, help="Check this job instead: what it would lack."
    ),
]


def doctor(
    job: JobFile = None,
    project: submit_options.Project = None,
    region: Region = None,
    before_install: BeforeInstall = False,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Check an installation, or a job before it is submitted, and show how to fix each problem.

    Exit status 1 if there is a problem (FIX), 3 if something could not be checked (?). A line with
    ! names something that some jobs or clients cannot do. A line with - names something that was
    not checked, because it does not apply.
    """
    if project:
        use_installation(project)
    if job is not None:
        from trainmaster.cli.job_files import read_job, with_job_name

        _, document = read_job(str(job), config=None, region=region)
        report(job_findings(with_job_name(document, str(job))), form, outcome_of_job)
    choose_installation()
    report(_findings(region, before_install), form)


def job_findings(document: Mapping[str, Any], staged: Objects | None = None) -> Iterator[Finding]:
    """Yield what the job would lack, and its price. `staged`: packages that are not uploaded."""
    from trainmaster.cli.doctor.file_checks import check_file
    from trainmaster.cli.doctor.findings import Status

    findings = check_file(document)
    yield from findings
    if any(finding.status is Status.FIX for finding in findings):
        return
    told = list(findings)
    if staged is not None:
        from trainmaster.cli.doctor.program_checks import check_staged_programs
        from trainmaster.jobspec.accept import accept

        packages = check_staged_programs(accept(document, default_job_id=None).plan, staged)
        told += packages
        yield from told[len(findings) :]
    choose_installation()
    values = settings()
    from trainmaster.cli.doctor.api_answer import check_by_api
    from trainmaster.cli.doctor.inspecting import open_inspection, run_check
    from trainmaster.cli.doctor.job_checks import check_job, check_job_id
    from trainmaster.cli.doctor.remedies import Remedies
    from trainmaster.wiring.price_list import price_list

    remedies = Remedies(values.project, before_install=False)
    checks = chain(
        run_check("job id", lambda: check_job_id(document), remedies),
        run_check(
            "job",
            lambda: check_job(document, open_inspection(values), values, price_list(), staged),
            remedies,
        ),
    )
    for finding in checks:
        told.append(finding)
        yield finding
    if not any(finding.status is Status.FIX for finding in told):
        yield from check_by_api(document, told)


def outcome_of_job(findings: Sequence[Finding]) -> str:
    """Return what follows for a job from all lines."""
    from trainmaster.cli.doctor.findings import Status

    counts = Counter(finding.status for finding in findings)
    fixes, unknown, limits = counts[Status.FIX], counts[Status.UNKNOWN], counts[Status.LIMIT]
    if fixes:
        keep = "problem (FIX) keeps" if fixes == 1 else "problems (FIX) keep"
        return f"{fixes} {keep} the job from running."
    outcome = "Nothing that was checked keeps the job from running."
    if unknown:
        outcome += f" Lines that could not be checked (?): {unknown}."
    if limits:
        outcome += f" What it gets in place of something, or may wait for or fail by (!): {limits}."
    return outcome


def report(
    results: Iterator[Finding],
    form: Format,
    outcome: Callable[[Sequence[Finding]], str] | None = None,
) -> NoReturn:
    """Print findings as they come, and then the outcome of all. Exit with the status of the worst
    one.
    """
    findings = []
    for finding in results:
        findings.append(finding)
        if form is not Format.JSON:
            say(str(finding))
    if form is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    elif outcome:
        say(outcome(findings))
    statuses = {finding.status.exit_status for finding in findings} - {0}
    raise typer.Exit(min(statuses, default=0))


def _findings(region: str | None, before_install: bool) -> Iterator[Finding]:
    """Check the settings and, if they are valid, everything else."""
    from trainmaster.cli.doctor.checks import run_checks
    from trainmaster.cli.doctor.findings import ok, problem

    try:
        values = settings()
    except ValidationError as error:
        for text in settings_problems(error):
            yield problem(
                f"settings: {text}",
                'correct it; the page "settings" of the documentation describes all settings',
            )
        return
    yield ok(f"settings of project {values.project}")
    yield from run_checks(values, region, before_install=before_install)
