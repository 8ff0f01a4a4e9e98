"""Options that choose jobs by state, user and label, for the commands that read many jobs."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from trainmaster.cli.installation import user_name
from trainmaster.cli.options import given
from trainmaster.core.model.job import JobState, Label
from trainmaster.core.model.label_rules import is_legal_job_label
from trainmaster.errors import PermanentError
from trainmaster.ports import JobFilter

_STATES: Final = ", ".join(state.value for state in JobState)

ByState = Annotated[
    list[JobState] | None,
    typer.Option(
        case_sensitive=False,
        metavar="STATE",
        help=f"Only jobs in this state; may be repeated. {_STATES}.",
    ),
]
ByUser = Annotated[
    str | None,
    typer.Option(
        callback=given, metavar="EMAIL", help="Only jobs that this user submitted, verified or not."
    ),
]
Mine = Annotated[
    bool,
    typer.Option(
        "--mine", help="Only your jobs: those of gcloud's account, or else of your name here."
    ),
]
ByLabel = Annotated[
    list[str] | None,
    typer.Option(help="Only jobs with this label; may be repeated.", metavar="KEY=VALUE"),
]


def job_filter(state: ByState, user: ByUser, mine: bool, label: ByLabel) -> JobFilter:
    """Return the filter that these options request; an option that is not given admits all jobs.

    Raises PermanentError for `mine` together with `user`, and for a label that no job can have.
    """
    if mine and user:
        raise PermanentError(
            "--mine and --user cannot be combined: --mine is --user with your own address"
        )
    labels = [text.partition("=") for text in label or ()]
    if not all(equals and is_legal_job_label(key, value) for key, equals, value in labels):
        raise PermanentError(
            f"--label: {', '.join(label or ())} must be KEY=VALUE, of a-z, 0-9, _, -, as in"
            " team=vision"
        )
    return JobFilter(
        states=tuple(state or ()),
        user=user_name() if mine else user or "",
        labels=tuple(Label(key, value) for key, _, value in labels),
    )
