"""`trainmaster doctor`: looks at an installation and says what to do about each thing that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from cli.installation import PROJECT, choose, settings_problems
from cli.jobs import Form
from cli.output import Format, print_json, say
from shared.settings import settings

if TYPE_CHECKING:
    from cli.doctor.findings import Finding

Project = Annotated[str | None, typer.Option(help=f"Project of the installation, instead of {PROJECT}.")]
Region = Annotated[str | None, typer.Option(help="A region to look at the quotas of.")]


def doctor(project: Project = None, region: Region = None, form: Form = Format.TABLE) -> None:
    """Look at an installation: exit status 1 if anything is wrong, and what to do about it."""
    from cli.doctor.findings import Status

    if project:
        _as_installed(project)
    choose()
    findings = []
    for finding in _findings(region):
        findings.append(finding)
        if form is not Format.JSON:
            said = f"{finding.status:<4} {finding.what}"
            say(f"{said}: {finding.fix}" if finding.fix else said)
    if form is Format.JSON:
        print_json([asdict(finding) for finding in findings])
    raise typer.Exit(int(any(finding.status is Status.FIX for finding in findings)))


def _findings(region: str | None) -> Iterator[Finding]:
    """Without settings there is nothing to look at."""
    from cli.doctor.checks import examine
    from cli.doctor.findings import Finding, Status, fix

    try:
        values = settings()
    except ValidationError as error:
        for problem in settings_problems(error):
            yield fix(f"settings: {problem}", "docs/settings.md says what it takes")
        return
    yield Finding(Status.OK, f"settings of project {values.project}")
    yield from examine(values, region)


def _as_installed(project: str) -> None:
    """Names as infra/ gives them, where the environment says nothing else."""
    os.environ[PROJECT] = project
    os.environ.setdefault("TRAINMASTER_BUCKET", f"{project}-trainmaster")
    os.environ.setdefault("TRAINMASTER_WORKER_SERVICE_ACCOUNT", f"trainmaster-worker@{project}.iam.gserviceaccount.com")
    settings.cache_clear()
