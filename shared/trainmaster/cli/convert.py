"""`trainmaster convert`: print the job file that a manifest, or a task of another tool, means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.job_files import foreign_notes
from trainmaster.cli.options import OutputFormat, given
from trainmaster.cli.output import Format, complain, print_json, problems_text, say
from trainmaster.errors import PermanentError
from trainmaster.jobspec.foreign.answer import ForeignFile
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.foreign_files import TITLES
from trainmaster.jobspec.reading.yaml_document import as_yaml


def convert(
    manifest: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="Manifest or task.")
    ],
    region: Annotated[
        str | None,
        typer.Option(
            callback=given,
            metavar="REGION",
            help="Region of the VMs, if the manifest does not name it.",
        ),
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Print the job file that a manifest of Kubeflow or JobSet, or a task of SkyPilot or dstack,
    means. `submit` converts manifests itself.
    """
    try:
        document = read_document(manifest.read_bytes(), manifest.name, region)
    except ForeignFile as foreign:
        # Only here is a task of another tool no error: everywhere else, it is refused as a job.
        answer = foreign.answer
        document = answer.job_file
        complain(f"converted {TITLES[answer.tool]}.{foreign_notes(answer)}")
    except InvalidJob as invalid:
        raise PermanentError(f"{manifest} cannot be read:{problems_text(invalid)}") from None
    if form is Format.JSON:
        print_json(document)
    else:
        say(as_yaml(document).rstrip())
