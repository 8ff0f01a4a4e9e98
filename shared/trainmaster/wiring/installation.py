"""The installation that commands and the Python client use: its project, bucket, region and the
address of its API. A project may have several installations, whose names tell them apart; one of
them may have no name (empty).

Options come before environment variables, then what `trainmaster init` has remembered. The command
line uses a running local stack before the remembered installation: `trainmaster.cli.installation`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from trainmaster.core.model.installation import INSTALLATION_VARIABLE, name_in_installation
from trainmaster.errors import PermanentError

VARIABLES: Final = {
    "project": "TRAINMASTER_PROJECT",
    "bucket": "TRAINMASTER_BUCKET",
    "region": "TRAINMASTER_REGION",
    "api": "TRAINMASTER_API_ENDPOINT",
    "installation": INSTALLATION_VARIABLE,
}
"""Name of a value in the file → its environment variable."""
PROJECT, BUCKET, REGION, API, INSTALLATION = VARIABLES.values()
WORKER_SERVICE_ACCOUNT: Final = "TRAINMASTER_WORKER_SERVICE_ACCOUNT"
"""Environment variable with the service account of the VMs."""


def worker_account_of(project: str, name: str | None = None) -> str:
    """Return the service account of the VMs, as infra/ names it.

    `name`: the installation's; None: that of this process's installation.
    """
    return f"{name_in_installation('trainmaster-worker', name)}@{project}.iam.gserviceaccount.com"


def known_variables(project: str | None = None) -> dict[str, str]:
    """Return the environment variables of an installation, with their values; empty: no project is
    known.

    Its project is `project`, else the environment's, else the remembered one. A value comes from
    the environment, else from the remembered installation, if that is the same one. Bucket and
    service account have a default, the name that infra/ gives them, unless the environment names
    the project: then it has to name them, too. Raises PermanentError for a bad file.
    """
    stored = remembered()
    project_of_environment = os.environ.get(PROJECT)
    chosen = project or project_of_environment or stored.get("project")
    if not chosen:
        return {}
    if stored.get("project") != chosen:
        stored = {}
    installation = os.environ.get(INSTALLATION, stored.get("installation", ""))
    known: dict[str, str] = {}
    has_defaults = bool(project) or not project_of_environment
    if has_defaults:
        known[BUCKET] = f"{chosen}-{name_in_installation('trainmaster', installation)}"
        known[WORKER_SERVICE_ACCOUNT] = worker_account_of(chosen, installation)
    is_remembered = stored.get("installation", "") == installation
    if is_remembered:
        known |= {VARIABLES[key]: value for key, value in stored.items()}
    for variable in (*VARIABLES.values(), WORKER_SERVICE_ACCOUNT):
        value = os.environ.get(variable)
        if value:
            known[variable] = value
    return {**known, PROJECT: chosen, INSTALLATION: installation}


def file() -> Path:
    """Return the path of the user's file, by the XDG base directory specification."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return config / "trainmaster" / "installation.json"


def remembered() -> dict[str, str]:
    """Return what `trainmaster init` has remembered; empty: nothing.

    Raises PermanentError for a bad file.
    """
    try:
        stored = json.loads(file().read_text(encoding="utf-8"))
        return {
            name: value for name, value in stored.items() if name in VARIABLES and value.strip()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise PermanentError(
            f"{file()} cannot be read: {error}. Delete it, and run `trainmaster init`"
        ) from None


def remember(values: dict[str, str]) -> None:
    """Replace the file, which only its user can read. Raises OSError."""
    file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=file().parent, delete=False) as new:  # of mode 0600
        json.dump(values, new, indent=2)
    Path(new.name).replace(file())
