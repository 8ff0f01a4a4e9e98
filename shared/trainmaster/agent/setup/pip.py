"""Running pip, and deciding whether its failure is the network's or the package's."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.program.program import Program
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.package_index import PackageIndex
from trainmaster.agent.setup.package_layers import user_base
from trainmaster.agent.setup.setup_errors import SetupError, new_setup_error
from trainmaster.agent.workspace import Workspace


class Pip:
    """The pip of the agent's Python. Its output is forwarded like a program's."""

    def __init__(
        self, runner: CancellableRunner, workspace: Workspace, index: PackageIndex
    ) -> None:
        self._index = index
        self._runner = runner
        self._workspace = workspace
        self._env = {
            **workspace.environ,
            # The VM is the job's: newer distributions refuse --user without it.
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }
        self._env.pop("PYTHONNOUSERSITE", None)  # pip refuses --user with it

    def install(
        self, options: Sequence[str], names: Sequence[str], folder: Path, extra: Sequence[str] = ()
    ) -> ProgramExit:
        """Run ``pip install`` in `folder`.

        Raises SetupError if the VM shuts down or its metadata cannot be read.

        The log shows the command that AI Platform Training documented; `extra` holds options that
        newer pips need.
        """
        self._workspace.log(
            f"Running command: {shlex.join(['pip3', 'install', '--user', *options, *names])}"
        )
        command = [sys.executable, "-m", "pip", "install", "--user", *options, *extra, *names]
        env = {**self._env, **user_base(), **self._index.environment()}
        return self._runner.run(lambda: Program(command, self._workspace, env=env, cwd=folder))


def pip_error(subject: str, pip_exit: ProgramExit) -> SetupError:
    """Return the error of a failed installation of `subject`, with pip's last error line."""
    # pip prints this if the network failed; any other failure is about the package.
    transient = pip_exit.signal is not None or "connection broken by" in pip_exit.tail
    how = f"status {pip_exit.exit_status}"
    if pip_exit.signal is not None:
        how = f"signal {pip_exit.signal}"
    message = f"cannot install {subject}: pip ended with {how}"
    error_lines = [line for line in map(str.strip, pip_exit.tail.splitlines()) if _is_error(line)]
    if error_lines:
        message = f"{message}: {error_lines[-1]}"
    error = new_setup_error(
        "PackageError",
        message,
        transient=transient,
        exit_status=pip_exit.exit_status,
        tail=pip_exit.tail,
    )
    if pip_exit.error is None:
        return error
    return SetupError(replace(error.failure, error=pip_exit.error))


def _is_error(line: str) -> bool:
    """Return whether pip reports an error in a line, and not only its headline of one."""
    return line.startswith(("ERROR:", "error:")) and "subprocess-exited" not in line
