"""Running pip: as a program whose output is forwarded, and whose failure is either the network's or the package's."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from shared.agent.program.program import Program
from shared.agent.setup.failure import Failure, SetupError, failed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shared.agent.control.workspace import Place
    from shared.agent.program.program import Ended
    from shared.agent.setup.setup_processes import Children


class Pip:
    def __init__(self, children: Children, place: Place) -> None:
        self._children = children
        self._place = place
        self._env = {
            **{name: value for name, value in place.environ.items() if name != "PYTHONNOUSERSITE"},
            "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the VM is the job's: newer distributions refuse --user without it
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def install(self, options: Sequence[str], names: Sequence[str], folder: Path, extra: Sequence[str] = ()) -> Ended:
        """Says the documented command; ``extra`` is what today's pip needs besides."""
        self._place.say(f"Running command: {shlex.join(['pip3', 'install', '--user', *options, *names])}")
        command = [sys.executable, "-m", "pip", "install", "--user", *options, *extra, *names]
        return self._children.run(lambda: Program(command, self._place, env=self._env, cwd=folder))


def pip_failure(what: str, ended: Ended) -> SetupError:
    """What pip ended with, in its own words."""
    # pip says so where it was the network; everything else is about the package.
    transient = ended.signal is not None or "connection broken by" in ended.tail
    said = [line.strip() for line in ended.tail.splitlines() if line.lstrip().startswith(("ERROR:", "error:"))]
    said = [line for line in said if "subprocess-exited" not in line]  # pip's headline: says nothing
    how = f"status {ended.exit_status}" if ended.signal is None else f"signal {ended.signal}"
    message = f"cannot install {what}: pip ended with {how}" + (f": {said[-1]}" if said else "")
    error = failed("PackageError", message, transient=transient, exit_status=ended.exit_status, tail=ended.tail)
    if ended.error is None:
        return error
    return SetupError(Failure(error.failure.cause, ended.exit_status, ended.error, ended.tail))
