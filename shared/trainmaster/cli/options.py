"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
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
DURATION_S_MAX: Final = 36_500 * UNITS_S["d"]
"""A century: a longer time is a mistake."""
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_PART: Final = re.compile(rf"({_NUMBER})([smhd]?)")
_DURATION: Final = re.compile(rf"{_NUMBER}|(?:{_NUMBER}[smhd])+")


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


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of `90m`, `2h`, `1h30m`, or of a plain number of seconds.

    Raises typer.BadParameter about the option, such as `--duration`.
    """
    seconds = _seconds(text)
    if seconds is None:
        raise typer.BadParameter(
            f"must be a time such as 90m, 2h or 1.5d, not {text!r}", param_hint=option
        )
    return seconds


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time that `90m` before `now`, `2026-11-21` or `2026-11-21T03:00:00Z` means.

    A time without a zone is UTC, as all times that are shown. Raises typer.BadParameter.
    """
    seconds = _seconds(text)
    if seconds is not None:
        return now - timedelta(seconds=seconds)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"must be an age, such as 90m, 2h or 1.5d, or a time in UTC, such as {now:%Y-%m-%d} or"
            f" {now:%Y-%m-%dT%H:%M}, not {text!r}",
            param_hint="--since",
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at > now:
        raise typer.BadParameter(
            f"{text} is in the future: it is now {now:%Y-%m-%dT%H:%M} UTC", param_hint="--since"
        )
    return at


def _seconds(text: str) -> float | None:
    """Return the seconds of `90m`, `1h30m` or `30`; None for another text, 0, or more than
    `DURATION_S_MAX`.
    """
    if not _DURATION.fullmatch(text):
        return None
    parts = _PART.findall(text)
    seconds: float = sum(float(number) * UNITS_S[unit or "s"] for number, unit in parts)
    return seconds if 0 < seconds <= DURATION_S_MAX else None


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
