"""The VM's container engine: docker, or podman, through its command line.

What is started carries the VM's name as a label, so that whatever an earlier agent left behind is found again: a
container is no child of the agent, and outlives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.agent.setup.devices import has_gpu, has_tpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LABEL = "trainmaster-vm"
DOCKER_HUB = "docker.io"
ANSWER_S = 60  # of the engine, to a question or an order that moves no data
NEVER = "0001-"  # as the engines write the time of what did not happen
RUNNING = ("running", "paused", "restarting", "removing")
INIT_FOLDERS = ("/usr/libexec/docker", "/usr/local/libexec/docker", "/usr/libexec/podman", "/usr/lib/podman")

_NO_IMAGE = re.compile("no such image|image not known", re.IGNORECASE)


@dataclass(frozen=True)
class ContainerState:
    """``was_started``: the engine got as far as running something."""

    is_running: bool
    was_started: bool
    exit_status: int
    out_of_memory: bool


class Engine:
    def __init__(self, program: str, vm: str) -> None:
        self._program = program
        self._vm = vm

    @staticmethod
    def find(environ: Mapping[str, str], vm: str) -> Engine | None:
        """None: this VM has none."""
        for name in ("docker", "podman"):
            program = shutil.which(name, path=environ.get("PATH"))
            if program is not None:
                return Engine(program, vm)
        return None

    def pull_command(self, image: str, credentials: Path | None) -> list[str]:
        if credentials is None:
            return [self._program, "pull", self._named(image)]
        if self.is_podman:
            return [self._program, "pull", "--authfile", str(credentials / "config.json"), self._named(image)]
        return [self._program, "--config", str(credentials), "pull", image]

    def run_command(self, name: str, options: Sequence[str], image: str, rest: Sequence[str]) -> list[str]:
        """In the foreground, with the program's output on its own two streams."""
        return [
            *(self._program, "run", "--name", name, "--label", f"{LABEL}={self._vm}"),
            *("--network", "host", "--ipc", "host"),  # the VM is the job's: its ports, and more than 64 MB of /dev/shm
            *("--log-driver", "none"),  # the agent forwards the output: no copy of it may fill the disk
            *(["--init"] if self._has_init() else []),  # who is process 1 ignores SIGTERM unless it handles it
            *_devices(is_podman=self.is_podman),
            *options,
            self._named(image),
            *rest,
        ]

    @property
    def is_podman(self) -> bool:
        return Path(self._program).name == "podman"

    def has(self, image: str) -> bool:
        """Raises EngineError where the engine does not answer."""
        done = self._ask("image", "inspect", "--format", "{{.Id}}", self._named(image))
        if done.returncode != 0 and not _NO_IMAGE.search(done.stderr):
            raise EngineError(done.stderr.strip() or f"{self._program} ended with status {done.returncode}")
        return done.returncode == 0

    def inspect(self, name: str) -> ContainerState | None:
        """None: there is no such container, or no engine to ask."""
        try:
            done = self._ask("container", "inspect", "--format", "{{json .State}}", name)
            state = json.loads(done.stdout) if done.returncode == 0 else None
        except (EngineError, ValueError):
            return None
        if state is None:
            return None
        return ContainerState(
            is_running=state["Status"] in RUNNING,
            was_started=not state["StartedAt"].startswith(NEVER),
            exit_status=state["ExitCode"],
            out_of_memory=bool(state.get("OOMKilled")),
        )

    def remove(self, *names: str) -> None:
        """Whatever it does now; nothing where it is gone already."""
        with contextlib.suppress(EngineError):
            self._ask("rm", "--force", "--volumes", *names)

    def remove_left(self) -> int:
        """Removes all containers of this VM; how many there were. None are found where no engine answers."""
        try:
            found = self._ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}={self._vm}").stdout.split()
        except EngineError:
            return 0
        if found:
            self.remove(*found)
        return len(found)

    def _named(self, image: str) -> str:
        """Podman asks nobody for a name without a registry; docker, for which jobs are written, asks Docker Hub."""
        if not self.is_podman or registry_of(image) is not None:
            return image
        return f"{DOCKER_HUB}/{image}" if "/" in image else f"{DOCKER_HUB}/library/{image}"

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=ANSWER_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(str(error)) from error

    def _has_init(self) -> bool:
        """Whether the engine's small init is installed; where it looks for it is its own business."""
        name = "catatonit" if self.is_podman else "docker-init"
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *INIT_FOLDERS])
        return shutil.which(name, path=path) is not None


def registry_of(image: str) -> str | None:
    """The host that an image's name begins with; None: docker's default."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else None


def _devices(*, is_podman: bool) -> list[str]:
    """Source: the engines' and Cloud TPU's manuals on accelerators in containers."""
    if has_gpu():
        return ["--device", "nvidia.com/gpu=all"] if is_podman else ["--gpus", "all"]
    if has_tpu():
        return ["--privileged"]
    return []


class EngineError(Exception):
    """The engine does not answer, or not as it should."""
