"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
from typing import Annotated, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.output import Format
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.job_log import replica_named
from trainmaster.errors import PermanentError

DEFAULT_REGION: Final = "us-central1"
"""Region that commands assume if neither the user nor the installation names one."""
UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Unit of a duration → its seconds."""


COMPLETED_MAX: Final = 100
"""Jobs that the shell's completion looks at, the newest ones."""


def complete_job_id(incomplete: str) -> list[str]:
    """Return job ids for the shell's completion. Never raises: the shell would show the error."""
    with contextlib.suppress(Exception):
        newest = open_store().recent_jobs(COMPLETED_MAX)
        listed = [job for job in newest if job.deleted_at is None]
        return [job.job_id for job in listed if job.job_id.startswith(incomplete)]
    return []


def given(text: str | None) -> str | None:
    """Return the text of an option.

    Raises typer.BadParameter for an empty one: a variable of a script may be unset.
    """
    if text == "":
        raise typer.BadParameter("must not be empty")
    return text


SHOWN_MAX: Final = 20
"""Replicas that an error names."""

JobId = Annotated[
    str, typer.Argument(help="Id of the job.", metavar="JOB", autocompletion=complete_job_id)
]
OutputFormat = Annotated[Format, typer.Option("--format", help="Output format.")]


def parse_duration(text: str) -> float:
    """Return the seconds of `90m`, `2h`, `1.5d`, or of a plain number of seconds.

    Raises typer.BadParameter.
    """
    unit_s = UNITS_S.get(text[-1:])
    try:
        value = float(text[:-1]) * unit_s if unit_s else float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise typer.BadParameter(
            f"{text!r} is not a duration, such as 90m, 2h or 1.5d: it counts back from now",
            param_hint="--since",
        )
    return value


def parse_replica(text: str, job: Job) -> ReplicaId:
    """Return the replica that users call so, in any of the forms of `replica_named`.

    Raises PermanentError if the job has no such replica.
    """
    replica_id = replica_named(text, job.plan)
    if replica_id is None:
        some = job.plan.replica_ids[:SHOWN_MAX]
        known = ", ".join(str(known_id) for known_id in some)
        raise PermanentError(f"{job.job_id} has no replica {text}. Its replicas: {known}")
    return replica_id
