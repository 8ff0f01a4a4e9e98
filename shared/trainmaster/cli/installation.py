"""The installation that a command works with.

It is the one that the environment names, else the local stack that `trainmaster local up` started
last, while it runs, else the one that `trainmaster init` has remembered. Only a user who has not
remembered one works with a stack that the working directory alone names: the working directory may
be a repository of strangers.
"""

from __future__ import annotations

import configparser
import contextlib
import getpass
import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainmaster.cli.local_distribution import running_stack
from trainmaster.cli.output import complain
from trainmaster.errors import PermanentError
from trainmaster.wiring.installation import INSTALLATION, PROJECT, known_variables, remembered

if TYPE_CHECKING:
    from trainmaster.ports import Store

PREFIX: Final = "TRAINMASTER_"
"""Beginning of the names of the environment variables that are settings."""
STATE_DIR_VARIABLE: Final = "TRAINMASTER_STATE_DIR"
"""Set by a local stack. Its definition is in the other distribution."""


def require_package(name: str, extra: str) -> None:
    """Raise PermanentError if the package of an extra is not installed."""
    if importlib.util.find_spec(name) is None:
        advice = (
            f"pipx install --force '.[{extra}]' in a checkout, or pip install {name} beside"
            " trainmaster"
        )
        raise PermanentError(f"{name} is not installed: {advice}")


def choose_installation() -> None:
    """Set the environment variables of the installation. Raises PermanentError if there is none.

    Print which one it is, if it is not the remembered one.
    """
    is_given = bool(os.environ.get(PROJECT))
    is_local = False
    if not is_given:
        with contextlib.suppress(PermanentError):
            os.environ.update(_local_stack_environment())
            is_local = True
    if not use_installation():
        raise PermanentError(
            f"no installation: run `trainmaster init --project PROJECT`, set {PROJECT}, or start a"
            " local stack with `trainmaster local up`"
        )
    stored = remembered()
    used = (os.environ[PROJECT], os.environ[INSTALLATION])
    is_remembered = used == (stored.get("project"), stored.get("installation", ""))
    if is_local or (stored and not is_remembered):
        _say_once(_describe_installation())


def use_installation(project: str | None = None) -> bool:
    """Set the known variables in the environment. False: there are none."""
    from trainmaster.settings import settings

    variables = known_variables(project)
    os.environ.update(variables)
    settings.cache_clear()
    return bool(variables)


def _describe_installation() -> str:
    name = os.environ[INSTALLATION]
    text = f"Working with project {os.environ[PROJECT]}"
    if name:
        text += f", installation {name}"
    state_dir = os.environ.get(STATE_DIR_VARIABLE)
    if state_dir:
        text += f", on the local stack in {state_dir}"
    return text


@cache
def _say_once(text: str) -> None:
    """Print it to standard error: a command may choose its installation more than once."""
    complain(text)


def _local_stack_environment() -> dict[str, str]:
    """Return the environment variables of the running local stack.

    Raises PermanentError if there is none, or if only the working directory names it while another
    installation is remembered.
    """
    return running_stack().environment(must_be_named=bool(remembered()))


def open_store() -> Store:
    """Return the stored state of the chosen installation."""
    choose_installation()
    from trainmaster.wiring.core_services import store

    return store()


def user_name() -> str:
    """Return gcloud's account, or else the name on this machine. Nothing has verified it."""
    return gcloud_property("account") or getpass.getuser()


def gcloud_property(name: str) -> str:
    """Return a property of gcloud's section `core`; empty: it is not set.

    Source: `gcloud topic configurations`: the environment comes before the active configuration.
    """
    value = os.environ.get(f"CLOUDSDK_CORE_{name.upper()}")
    if value:
        return value
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        active = (
            os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME")
            or (folder / "active_config").read_text().strip()
        )
        parser.read(folder / "configurations" / f"config_{active}")
    except (OSError, ValueError, configparser.Error):
        return ""
    return parser.get("core", name, fallback="")


def settings_problems(error: Exception) -> Iterator[str]:
    """Yield `VARIABLE: problem` for each invalid setting.

    Yield nothing for an error that is not about settings.
    """
    from pydantic import ValidationError

    if not isinstance(error, ValidationError) or error.title != "Settings":
        return
    for problem in error.errors():
        name = f"{PREFIX}{'_'.join(map(str, problem['loc'])).upper()}"
        yield f"{name}: {problem['msg'].removeprefix('Value error, ')}"
