"""The user's program in a container, which the engine runs in the foreground and which is removed
at its end.

For the agent it is a program like any other: the engine's command line. That command forwards the
output and the signals. The exit status is read from the engine, because the command's own status is
ambiguous.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import ContainerCommand
from trainmaster.agent.program.container_engine import ContainerEngine, last_lines
from trainmaster.agent.program.process_table import (
    PARENT,
    START_TIME,
    descendants,
    find_first_process,
    is_running,
    kill_all,
    marked,
    read_stats,
    was_killed,
)
from trainmaster.agent.program.program import Program, send_signal
from trainmaster.agent.program.save_request import FILE_VARIABLE as NOTICE_VARIABLE
from trainmaster.agent.program.signal_receivers import find_receivers
from trainmaster.agent.workspace import Workspace

_REMOVAL_POLL_S = 1.0  # between two tries to remove the container
ENGINE_FAILED = 125
"""The engine itself failed. Source: "Exit status" in the manual of docker run."""
_NOT_INVOKED = 126
_NOT_FOUND = 127
LAUNCH_FAILED = (_NOT_INVOKED, _NOT_FOUND)
"""The engine's statuses for a command that cannot be invoked, or does not exist."""
_INIT_FAILED = re.compile(
    r"\[FATAL tini |^ERROR \(catatonit:\d+\): failed to exec pid1: (?P<why>.*)", re.MULTILINE
)
"""Output of the engines' init programs if they cannot run the command. Docker's init names the
command and exits with the engine's status for that; podman's init exits with 1.
"""

# What the engines print for a container that image and job describe wrongly. The statuses are those
# of `docker run` for its own failures. Docker's words were seen. Of podman's, "no command or
# entrypoint provided" is from its sources; the others are not verified.
_NO_COMMAND = re.compile("no command specified|no command or entrypoint provided", re.IGNORECASE)
_WRONG_IMAGE = re.compile(
    r"unable to find (?:user|group) |no matching entries in (?:passwd|group) file"
    r"|no users found|invalid user|working directory|cannot mkdir: .* is not a directory"
    r"|\blstat .*: not a directory|\bmkdir .*: not a directory|workdir .* does not exist"
    r"|(?:chdir to cwd|\bchdir\b) ",
    re.IGNORECASE,
)

# Variables that the engine's command line reads itself. The program's values must not be in the
# command's environment.
_ENGINE_VARIABLES = re.compile(
    r"(DOCKER_|PODMAN_|_?CONTAINERS?_|BUILDKIT_|OTEL_|XDG_|LD_|SSL_CERT_)\w*"
    r"|STORAGE_(DRIVER|OPTS|CONF)|REGISTRY_AUTH_FILE|GLIBC_TUNABLES"
    r"|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)|PATH|HOME|TMPDIR|(HTTPS?|NO|ALL)_PROXY",
    re.IGNORECASE,
)
# The VM's own variables that the container gets: addresses of emulators. They are set on emulated
# VMs only.
_EMULATOR_VARIABLES = re.compile(r"GCE_METADATA_\w+|\w+_EMULATOR_HOST")


class ContainerProgram(Program):
    """A container: its process is the engine's command line."""

    def __init__(
        self,
        engine: ContainerEngine,
        name: str,
        container: ContainerCommand,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        mounts: Sequence[str],
        workspace: Workspace,
    ) -> None:
        """Start the container. `mounts`: values of the engine's option --mount.

        Raises OSError or ValueError if it cannot be started.
        """
        self._engine = engine
        self._name = name
        self._command = container.command[0] if container.command else "the image's ENTRYPOINT"
        entrypoint = ["--entrypoint", container.command[0]] if container.command else []
        variables = {
            name: value
            for name, value in workspace.environ.items()
            if _EMULATOR_VARIABLES.fullmatch(name)
        }
        variables.update({"PYTHONUNBUFFERED": "1"}, **env)
        from_file = {}  # variables that must not be in the environment of the engine's command
        for variable in list(variables):
            if _ENGINE_VARIABLES.fullmatch(variable):
                from_file[variable] = variables.pop(variable)
        self._mark = f"{NOTICE_VARIABLE}={env[NOTICE_VARIABLE]}".encode()
        """A variable that no container of another VM has with this value."""
        self._has_init = engine.has_init
        self._first: int | None = None
        """The container's first process, once it was found."""
        self._env_file = workspace.work / "container.env"
        _write_env_file(self._env_file, from_file)
        # The command line holds the names only. The values are in the environment of the engine's
        # command: there they may have several lines, and no list of processes shows a secret.
        options = list(entrypoint)
        for variable in sorted(variables):
            options += ["--env", variable]
        options += ["--env-file", str(self._env_file)]
        for mount in mounts:
            options += ["--mount", mount]
        command = engine.run_command(
            name, options, container.image, [*container.command[1:], *arguments]
        )
        super().__init__(
            command, workspace, env={**workspace.environ, **variables}, cwd=workspace.work
        )

    def wait(self) -> ProgramExit:
        """Wait for the end of the container, and remove it."""
        cli_exit = super().wait()
        state = self._engine.inspect(self._name)
        while not self._engine.remove(self._name) and self._engine.is_running(self._name):
            self.killed_at = self.killed_at or time.monotonic()
            time.sleep(_REMOVAL_POLL_S)
        kill_all(super()._survivors)
        self._env_file.unlink()
        if state is None or not state.was_started:
            return _start_failed(cli_exit, last_lines(cli_exit))
        init_exit = self._init_failure(cli_exit)
        if init_exit is not None:
            return init_exit
        if state.is_running:
            # The engine's command was killed; `remove` has just killed the container.
            return cli_exit
        message = cli_exit.error["message"] if cli_exit.error else ""
        is_killed = was_killed(state.exit_status, message)
        return replace(
            cli_exit,
            exit_status=state.exit_status,
            signal=None,
            out_of_memory=cli_exit.out_of_memory or (is_killed and state.out_of_memory),
        )

    def _init_failure(self, cli_exit: ProgramExit) -> ProgramExit | None:
        """Return the exit of a container whose init program could not run the command; None if it
        could.
        """
        init = _INIT_FAILED.search(cli_exit.tail)
        if init is None or cli_exit.exit_status not in (1, *LAUNCH_FAILED):
            return None
        why = init.group("why")
        if why is None:  # Docker's init, which exits with the engine's status for the reason
            return _start_failed(cli_exit, last_lines(cli_exit))
        status = _NOT_INVOKED if "denied" in why else _NOT_FOUND
        return _start_failed(
            replace(cli_exit, exit_status=status), f"cannot run {self._command}: {why}"
        )

    def roots(self) -> set[int]:
        """Return the process that the job or the image named.

        With an init program, it is the eldest child of the container's first process, whose other
        children are processes that have lost their parents.
        """
        first = self._find_first()
        if first is None:
            return set()
        if not self._has_init:
            return {first}
        stats = read_stats()
        children = [pid for pid, fields in stats.items() if int(fields[PARENT]) == first]
        return {min(children, key=lambda pid: int(stats[pid][START_TIME]))} if children else set()

    def processes(self) -> list[int]:
        """Return all processes of the container, each before its children.

        Commands that somebody else runs in it are not the program's.
        """
        first = self._find_first()
        return descendants({first}, read_stats()) if first is not None else []

    def _survivors(self) -> list[int]:
        """Return the processes of the engine's command.

        Podman's conmon, which the agent adopts, must record how the container ends.
        """
        return marked(self._workspace.work)

    def notify(self, number: signal.Signals) -> None:
        """Ask the program to save, whether it catches the signal or not."""
        if not self.ask(find_receivers(self.roots(), number), number):
            self.ask([self.pid], number)

    def _terminate(self) -> None:
        """Send SIGTERM to the program.

        The engine's command, which passes it on to the container's first process only, gets it if
        the program's processes are not known.
        """
        receivers = find_receivers(self.roots(), signal.SIGTERM)
        sent = [pid for pid in receivers if send_signal(pid, signal.SIGTERM)]
        if not sent:
            super()._terminate()

    def _find_first(self) -> int | None:
        """Return the container's first process; None if it is not known, or does not run.

        It keeps its number, whatever it does to its environment later.
        """
        if self._first is None or not is_running(self._first):
            self._first = find_first_process(self._mark)
        return self._first


def bind_option(source: Path, target: str) -> str:
    """Return the value of --mount for a folder of the VM."""
    return f"type=bind,source={source},target={target}"


def _start_failed(cli_exit: ProgramExit, why: str) -> ProgramExit:
    """Return the exit of a container that did not start.

    A command, user or working directory that is not in the image is the user's error; any other
    failure of the engine counts as the platform's.
    """
    if cli_exit.exit_status not in (ENGINE_FAILED, *LAUNCH_FAILED):
        return cli_exit
    if cli_exit.exit_status == ENGINE_FAILED and _NO_COMMAND.search(why):
        why = (
            "neither the job nor the image names a command: set a command in the job, or ENTRYPOINT"
            " or CMD in the image"
        )
        cli_exit = replace(cli_exit, exit_status=_NOT_INVOKED)
    elif cli_exit.exit_status == ENGINE_FAILED and _WRONG_IMAGE.search(why):
        why = f"{why}. Correct USER or WORKDIR of the image"
        cli_exit = replace(cli_exit, exit_status=_NOT_INVOKED)
    error = {"type": "ContainerError", "message": why, "frame": ""}
    is_user_error = cli_exit.exit_status in LAUNCH_FAILED
    return replace(cli_exit, error=error, cause="process" if is_user_error else "setup")


def _write_env_file(file: Path, variables: Mapping[str, str]) -> None:
    """Write variables in the format of --env-file.

    Raises ValueError if a value has several lines.
    """
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise ValueError(
                f"the value of the variable {name} must be a single line in a container"
            )
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in variables.items())
