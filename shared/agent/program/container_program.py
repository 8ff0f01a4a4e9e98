"""The user's program in a container: run by the engine in the foreground, and gone when it has ended.

To the agent it is a program like any other, the engine's command line: its output is forwarded, signals reach it
through that, and what it ended with is asked of the engine, which alone knows.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.agent.program.program import Program
from shared.agent.setup.container_image import last_words

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from shared.agent.control.vm_config import Container
    from shared.agent.control.workspace import Place
    from shared.agent.program.container_engine import Engine
    from shared.agent.program.program import Ended

ENGINE_FAILED = 125  # Source: "Exit status" in the manual of docker run
LAUNCH_FAILED = (126, 127)  # the engine's words for a command that cannot be invoked, or is not there
KILLED = 137
# What the engines' small inits say where they cannot run the command. Docker's names it, and ends with the engine's own
# status for that; podman's ends with 1.
_INIT_FAILED = re.compile(r"\[FATAL tini |^ERROR \(catatonit:\d+\): failed to exec pid1: (?P<why>.*)", re.MULTILINE)

# What the engine's command line reads itself, and so must not get as its own.
_STEERS_THE_ENGINE = re.compile(
    r"(DOCKER_|CONTAINERS?_|BUILDKIT_|XDG_|LD_|SSL_CERT_)\w*"
    r"|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)|PATH|HOME|TMPDIR|(HTTPS?|NO|ALL)_PROXY",
    re.IGNORECASE,
)
# Of the VM's own variables those that say where Google's services are: an emulated VM has them, a real one has none.
_WHEREABOUTS = re.compile(r"GCE_METADATA_\w+|\w+_EMULATOR_HOST")


class ContainerProgram:
    """Starts when constructed (OSError, ValueError); otherwise as ``Program``. ``mounts``: from folders of the VM to
    where the container has them."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        container: Container,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        mounts: Mapping[Path, str],
        place: Place,
    ) -> None:
        self._engine = engine
        self._name = name
        self._command = container.command[0] if container.command else "the image's ENTRYPOINT"
        entrypoint = ["--entrypoint", container.command[0]] if container.command else []
        inside = {name: value for name, value in place.environ.items() if _WHEREABOUTS.fullmatch(name)}
        inside.update({"PYTHONUNBUFFERED": "1"}, **env)
        steering = {name: inside.pop(name) for name in list(inside) if _STEERS_THE_ENGINE.fullmatch(name)}
        self._file = place.work / "container.env"
        _write_env_file(self._file, steering)
        # Names only: values go by the engine's own environment, where they may be of several lines, and nobody's list
        # of processes shows a secret.
        variables = [word for name in sorted(inside) for word in ("--env", name)]
        folders = [word for here, there in mounts.items() for word in ("--mount", _bind(here, there))]
        options = [*entrypoint, *variables, "--env-file", str(self._file), *folders]
        command = engine.run_command(name, options, container.image, [*container.command[1:], *arguments])
        self._cli = Program(command, place, env={**place.environ, **inside}, cwd=place.work)

    def notify(self, number: signal.Signals) -> None:
        self._cli.notify(number)

    def end(self, grace_s: float) -> None:
        self._cli.end(grace_s)

    def kill(self) -> None:
        self._cli.kill()

    def wait(self) -> Ended:
        """Waits for the end of the container, and removes it."""
        ended = self._cli.wait()
        state = self._engine.inspect(self._name)
        self._engine.remove(self._name)
        self._file.unlink()
        if state is None or not state.was_started:
            return _not_started(ended, last_words(ended))
        init = _INIT_FAILED.search(ended.tail)
        if init is not None and ended.exit_status in (1, *LAUNCH_FAILED):
            why = init.group("why")
            if why is None:
                return _not_started(ended, last_words(ended))
            status = 126 if "denied" in why else 127
            return _not_started(replace(ended, exit_status=status), f"cannot run {self._command}: {why}")
        if state.is_running:  # the command line was killed, and the container just now
            return ended
        killed = state.exit_status == KILLED
        return replace(
            ended,
            exit_status=state.exit_status,
            signal=None,
            out_of_memory=ended.out_of_memory or (killed and state.out_of_memory),
        )


def _bind(here: Path, there: str) -> str:
    return f"type=bind,source={here},target={there}"


def _not_started(ended: Ended, why: str) -> Ended:
    """A command that is not in the image is the user's; all else that keeps the engine from running it is ours."""
    if ended.exit_status not in (ENGINE_FAILED, *LAUNCH_FAILED):
        return ended
    error = {"type": "ContainerError", "message": why, "frame": ""}
    is_users = ended.exit_status in LAUNCH_FAILED
    return replace(ended, error=error, cause="process" if is_users else "setup")


def _write_env_file(file: Path, variables: Mapping[str, str]) -> None:
    """Raises ValueError for what this format cannot hold."""
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"the variable {name} must not have line ends in a container")
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in variables.items())
