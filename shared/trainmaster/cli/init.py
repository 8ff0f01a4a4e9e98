"""`trainmaster init`: remember the installation that commands and the Python client work with."""

from __future__ import annotations

import os
import re
from typing import Annotated, Final

import typer

from trainmaster.cli.installation import choose_installation, gcloud_property
from trainmaster.cli.options import given
from trainmaster.cli.output import say
from trainmaster.core.model.installation import checked, name_in_installation
from trainmaster.errors import PermanentError
from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster.wiring.installation import (
    API,
    INSTALLATION,
    PROJECT,
    VARIABLES,
    file,
    remember,
    remembered,
)

API_ADDRESS: Final = re.compile(r"https://[^/\s]+/?|http://(127\.0\.0\.1|localhost):[0-9]+/?")
_PROJECT: Final = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
"""Source: Resource Manager's rule for project ids."""


def init(
    project: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT",
            help=f"Project of the installation. [default: ${PROJECT}, or gcloud's project]",
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(callback=given, metavar="REGION", help="Region of jobs that name none."),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"Address of the function api: `terraform output api`. [default: ${API}]",
        ),
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(metavar="BUCKET", help="Bucket of packages. [default: the one of infra/]"),
    ] = None,
    installation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"Name of one of several installations. [default: ${INSTALLATION}]"
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Show what commands use here, and what is remembered. Change nothing."
        ),
    ] = False,
) -> None:
    """Remember project, region and API address of your installation, so that no command needs them
    again.

    An option of a command comes first, then an environment variable (TRAINMASTER_PROJECT,
    TRAINMASTER_BUCKET, TRAINMASTER_REGION, TRAINMASTER_API_ENDPOINT, TRAINMASTER_INSTALLATION),
    then a running local stack, then what this command has remembered. gcloud's configuration only
    provides the default of --project here. Values that are not given again stay, unless the project
    or the installation changes.
    """
    if show:
        choose_installation()
        for name, variable in VARIABLES.items():
            say(
                f"{variable}={os.environ.get(variable, '')}   # remembered:"
                f" {remembered().get(name, 'nothing')}"
            )
        return
    project = project or os.environ.get(PROJECT) or gcloud_property("project")
    if not _PROJECT.fullmatch(project):
        raise PermanentError(
            f"--project: {project!r} is not a project id. Example: --project my-project"
        )
    if region and region not in REGION_ZONES:
        raise PermanentError(f"--region: {region!r} is not a region. Example: --region us-central1")
    if api is None:
        api = os.environ.get(API) or None
    if api is not None and not API_ADDRESS.fullmatch(api):
        raise PermanentError(
            f"--api: {api!r} is not an address. Example: --api https://api-x-uc.a.run.app"
        )
    stored = remembered()
    stored_name = None  # of the remembered installation in this project
    if stored.get("project") == project:
        stored_name = stored.get("installation", "")
    if installation is None:
        installation = os.environ.get(INSTALLATION, stored_name or "")
    try:
        name = checked(installation)
    except ValueError as error:
        raise PermanentError(f"--installation: {error}") from None
    new = {"project": project, "bucket": bucket, "region": region, "api": api, "installation": name}
    is_same_installation = stored_name == name
    default_bucket = f"{project}-{name_in_installation('trainmaster', name)}"
    kept = stored if is_same_installation else {"bucket": default_bucket}
    remember({**kept, **{field: value for field, value in new.items() if value}})
    say(f"{file()} has the installation in {project}. Check it: trainmaster doctor")
