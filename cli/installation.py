"""Which installation a command speaks to: the one of the environment, else the local stack that is up here."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pydantic import ValidationError

from emulators.stack import client_configuration, stack, state
from emulators.stack.state import StackError
from shared.errors import PermanentError

PREFIX = "TRAINMASTER_"
PROJECT = f"{PREFIX}PROJECT"


def choose() -> None:
    """Sets the variables of the local stack where the environment names no installation."""
    if os.environ.get(PROJECT):
        return
    folder = state.find_dir(None)
    try:
        os.environ.update(client_configuration.environment(folder, stack.find(folder)))
    except StackError:
        raise PermanentError(
            f"which installation? Set {PROJECT}, or start a local one: `trainmaster local up`"
        ) from None


def settings_problems(error: ValidationError) -> Iterator[str]:
    """`TRAINMASTER_LIMITS: …`, one for each setting that is wrong."""
    for each in error.errors():
        name = f"{PREFIX}{'_'.join(map(str, each['loc'])).upper()}"
        yield f"{name}: {each['msg'].removeprefix('Value error, ')}"
