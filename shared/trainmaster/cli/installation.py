"""The installation that a command works with: the one that the environment names, else the running local stack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from trainmaster.errors import PermanentError

if TYPE_CHECKING:
    from trainmaster.ports import Store

PREFIX: Final = "TRAINMASTER_"
PROJECT: Final = f"{PREFIX}PROJECT"
BUCKET: Final = f"{PREFIX}BUCKET"
WORKER_SERVICE_ACCOUNT: Final = f"{PREFIX}WORKER_SERVICE_ACCOUNT"
LOCAL_EXTRA_MISSING: Final = (
    "`trainmaster local` needs more packages. Install them in a checkout: pipx install --force '.[local]'"
)


def choose_installation() -> None:
    """Set the environment variables of the local stack, unless the environment names an installation.

    Raises PermanentError if there is neither.
    """
    if os.environ.get(PROJECT):
        return
    try:
        os.environ.update(_local_stack_environment())
    except PermanentError:
        raise PermanentError(
            f"no installation: set {PROJECT} to its project, or start a local stack with `trainmaster local up`"
        ) from None


def _local_stack_environment() -> dict[str, str]:
    """Return the environment variables of the running local stack. Raises PermanentError if there is none."""
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


def admission_limits() -> Mapping[str, int]:
    """Return the limits of the admission queue, of the installation whose state `open_store` has opened."""
    from trainmaster.settings import settings

    return settings().limits


def worker_account_of(project: str) -> str:
    """Return the service account of the VMs, as infra/ names it."""
    return f"trainmaster-worker@{project}.iam.gserviceaccount.com"


def use_project(project: str) -> None:
    """Set the project, and the names that infra/ gives to its resources unless the environment names others."""
    from trainmaster.settings import settings

    os.environ[PROJECT] = project
    os.environ.setdefault(BUCKET, f"{project}-trainmaster")
    os.environ.setdefault(WORKER_SERVICE_ACCOUNT, worker_account_of(project))
    settings.cache_clear()


def settings_problems(error: Exception) -> Iterator[str]:
    """Yield `VARIABLE: problem` for each invalid setting. Yield nothing for an error that is not about settings."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError) or error.title != "Settings":
        return
    for problem in error.errors():
        name = f"{PREFIX}{'_'.join(map(str, problem['loc'])).upper()}"
        yield f"{name}: {problem['msg'].removeprefix('Value error, ')}"
