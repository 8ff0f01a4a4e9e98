"""The installation that a command works with.

It is the one that the environment names, else the running local stack, else the one that
`trainmaster init` has remembered.
"""

from __future__ import annotations

import configparser
import contextlib
import getpass
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainmaster.errors import PermanentError
from trainmaster.wiring.installation import PROJECT, use_installation

if TYPE_CHECKING:
    from trainmaster.ports import Store

PREFIX: Final = "TRAINMASTER_"
LOCAL_EXTRA_MISSING: Final = (
    "`trainmaster local` needs more packages. Install them in a checkout: pipx install --force"
    " '.[local]'"
)


def require_package(name: str, extra: str) -> None:
    """Raise PermanentError if the package of an extra is not installed."""
    if importlib.util.find_spec(name) is None:
        advice = (
            f"pipx install --force '.[{extra}]' in a checkout, or pip install {name} beside"
            " trainmaster"
        )
        raise PermanentError(f"{name} is not installed: {advice}")


def choose_installation() -> None:
    """Set the environment variables of the installation. Raises PermanentError if there is none."""
    if not os.environ.get(PROJECT):
        with contextlib.suppress(PermanentError):
            os.environ.update(_local_stack_environment())
    if not use_installation():
        raise PermanentError(
            f"no installation: run `trainmaster init --project PROJECT`, set {PROJECT}, or start a"
            " local stack with `trainmaster local up`"
        )


def _local_stack_environment() -> dict[str, str]:
    """Return the environment variables of the running local stack.

    Raises PermanentError if there is none.
    """
    try:
        from trainmaster_emulators.process import state
        from trainmaster_emulators.stack import client_configuration, stack
    except ModuleNotFoundError:
        raise PermanentError(LOCAL_EXTRA_MISSING) from None
    state_dir = state.find_state_dir(None)
    return client_configuration.environment(state_dir, stack.find(state_dir))


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
