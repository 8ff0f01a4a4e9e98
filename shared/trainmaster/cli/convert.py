"""`trainmaster convert`: print the job file that a manifest is converted to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml

from trainmaster.cli.options import OutputFormat, given
from trainmaster.cli.output import Format, print_json, say
from trainmaster.cli.submit import read_job


def convert(
    manifest: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, metavar="MANIFEST", help="Manifest.")
    ],
    region: Annotated[
        str | None,
        typer.Option(callback=given, help="Region of the VMs, if the manifest does not name it."),
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Print the job file that a manifest of Kubeflow or JobSet is converted to. `submit` converts
    manifests itself.
    """
    _, document = read_job(str(manifest), None, region)
    if form is Format.JSON:
        print_json(document)
    else:
        # A job file has no anchors, which the dumper would write for values that occur twice.
        copy = json.loads(json.dumps(document))
        say(yaml.safe_dump(copy, sort_keys=False, allow_unicode=True, width=120).rstrip())
