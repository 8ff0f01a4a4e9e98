"""The options of `trainmaster submit`, as types of the command's parameters.

`cli.submit` declares its parameters with them: `project: options.Project = None`. Options that only
set a field of the job file, such as `--region`, are made from a table (`gcloud_flags`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from trainmaster.cli.options import given

_program = partial(typer.Option, rich_help_panel="Program")
"""An option in the section "Program" of the command's help."""

JOB_HELP: Final = (
    "Job file, or the id of a job that the options describe. Needed unless --config or --folder is"
    " given."
)

Job = Annotated[str | None, typer.Argument(help=JOB_HELP, metavar="FILE|JOB")]
Project = Annotated[
    str | None,
    typer.Option(
        callback=given,
        metavar="PROJECT",
        help="Project of the installation. [default: that of `trainmaster init`]",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, metavar="FILE", help="Job file. Options override it."
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Wait until the job has ended. Exit status 1 unless it SUCCEEDED."),
]
Async = Annotated[
    bool, typer.Option("--async", hidden=True, help="Return at once. This is the default.")
]
StreamLogs = Annotated[
    bool, typer.Option("--stream-logs", help="Show the job's log while waiting for its end.")
]

PackagePath = Annotated[
    Path | None,
    _program(
        exists=True, file_okay=False, metavar="DIR", help="Folder of the Python package to run."
    ),
]
Folder = Annotated[
    Path | None,
    _program(
        exists=True, file_okay=False, metavar="DIR", help="Folder to run the command after -- in."
    ),
]
Packages = Annotated[
    str | None,
    _program(
        metavar="LIST", help="More packages: local files and gs:// URIs, separated by commas."
    ),
]
StagingBucket = Annotated[
    str | None,
    _program(callback=given, metavar="BUCKET", help="Bucket that local packages are uploaded to."),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help=(
            "Show what the job would lack, and do not submit it. Exit status 1 if there is a"
            " problem."
        ),
    ),
]
