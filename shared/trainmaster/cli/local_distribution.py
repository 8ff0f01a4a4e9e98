"""What the distribution `trainmaster-local` adds to the command line, if it is installed.

It is found by name: no module of this distribution imports one of the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Protocol, cast

from trainmaster.errors import PermanentError

PACKAGE: Final = "trainmaster_local"
MISSING: Final = (
    "this needs trainmaster-local, which is not installed. Install it in a checkout: pipx install"
    " --force '.[local]'"
)


class RunningStack(Protocol):
    """The module `trainmaster_local.running_stack`."""

    def environment(self, *, must_be_named: bool) -> dict[str, str]:
        """Return the environment variables of the stack that runs.

        `must_be_named`: it does not count if only the working directory names it. Raises
        PermanentError if none runs.
        """
        ...

    def init_process(self, vm: str, host: int) -> int:
        """Return the process id of the first process of a VM, or of a host of a TPU node."""
        ...


def running_stack() -> RunningStack:
    """Return what finds the local stack. Raises PermanentError if it is not installed."""
    return cast("RunningStack", import_local(f"{PACKAGE}.running_stack"))


def import_local(module: str) -> Any:
    """Import a module of the other distribution. Raises PermanentError if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise PermanentError(MISSING) from None
