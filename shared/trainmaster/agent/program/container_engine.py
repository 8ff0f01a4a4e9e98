"""The VM's container engine: docker or podman, through its command line.

A container is not a child process of the agent and outlives it. Each container is therefore
labelled with the VM's name, so that the next agent finds what an earlier one left behind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.program.devices import has_gpu, has_tpu

LABEL = "trainmaster-vm"
"""Label of this VM's containers."""
DOCKER_HUB = "docker.io"
COMMAND_S = 60  # timeout of an engine command that moves no data
NEVER = "0001-"  # how the engines write the time of an event that has not happened
# States of a container that has a process
RUNNING = ("running", "paused", "restarting", "removing")
PODMAN_INITS = ("catatonit", "tini")  # podman itself looks for the first one only
INIT_FOLDERS = (
    "/usr/libexec/docker",
    "/usr/local/libexec/docker",
    "/usr/libexec/podman",
    "/usr/lib/podman",
)
LAST_LINES = 3  # lines of the engine's output that an error message quotes
HARMLESS_SIGNAL = "SIGCONT"
"""It changes nothing for a program that runs."""
STOP_S = 60
"""Time that an engine which is stopped leaves its containers before SIGKILL. It is longer than a
save.
"""

CONTAINER = "container"
KINDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    CONTAINER: (("ps", "--all", "--quiet", "--no-trunc"), ("rm", "--force", "--volumes")),
    "volume": (("volume", "ls", "--quiet"), ("volume", "rm", "--force")),
    "network": (("network", "ls", "--format", "{{.Name}}"), ("network", "rm")),
}
"""Kind of object that programs make → the commands that list and remove it. Volumes and networks
can be removed once no container uses them.
"""
PREDEFINED_NETWORKS = ("bridge", "host", "none", "podman")

# Lines of the engine's output: its hint at the manual, and that there is no such image
_HINT = re.compile(r"(Run|See) '\w+ run --help'")
_NO_IMAGE = re.compile("no such image|image not known", re.IGNORECASE)


class EngineError(Exception):
    """The engine does not answer, or reports an error."""


@dataclass(frozen=True)
class ContainerState:
    """The state of a container, as the engine reports it."""

    is_running: bool
    was_started: bool
    """Whether the engine started a process in the container."""
    exit_status: int
    """Exit status of its process; without meaning while it is running."""
    out_of_memory: bool
    """Whether the kernel killed it because memory ran out."""


class ContainerEngine:
    """The command line of docker or podman.

    Methods named `…_command` return a command that the caller runs, because it takes long; the
    others run one and return its result.
    """

    def __init__(self, program: str, vm: str) -> None:
        """`program`: path of the engine's command. `vm`: name of this VM, for the label."""
        self._program = program
        self._vm = vm

    @staticmethod
    def find_all(environ: Mapping[str, str], vm: str) -> list[ContainerEngine]:
        """Return the engines on the PATH, docker first."""
        programs = [shutil.which(name, path=environ.get("PATH")) for name in ("docker", "podman")]
        return [ContainerEngine(program, vm) for program in programs if program is not None]

    @staticmethod
    def find(environ: Mapping[str, str], vm: str) -> ContainerEngine | None:
        """Return the engine that runs programs, docker first; None if there is none."""
        return next(iter(ContainerEngine.find_all(environ, vm)), None)

    def version_command(self) -> list[str]:
        """Return the command that prints the engine's name and version.

        It needs no running engine.
        """
        return [self._program, "--version"]

    def pull_command(self, image: str, credentials: Path | None) -> list[str]:
        """Return the command that pulls an image.

        `credentials`: a folder with a config.json in docker's format.
        """
        if credentials is None:
            return [self._program, "pull", self._full_name(image)]
        if self.is_podman:
            return [
                self._program,
                "pull",
                "--authfile",
                str(credentials / "config.json"),
                self._full_name(image),
            ]
        return [self._program, "--config", str(credentials), "pull", image]

    def run_command(
        self, name: str, options: Sequence[str], image: str, rest: Sequence[str]
    ) -> list[str]:
        """Return the command that runs a container in the foreground, with its output on the
        command's two streams.

        `options`: further options of `run`. `rest`: the command in the container.
        """
        command = [self._program, "run"]
        command += ["--name", name]
        command += ["--label", f"{LABEL}={self._vm}"]
        # The VM is the job's: its ports, and all of its shared memory instead of 64 MB.
        command += ["--network", "host"]
        command += ["--shm-size", str(shared_memory_bytes())]
        # The agent forwards the output. A second copy could fill the disk.
        command += ["--log-driver", "none"]
        # The engine stops its containers when the VM shuts down. The agent does it, too, and knows
        # whether the program is saving.
        command += ["--stop-signal", HARMLESS_SIGNAL]
        command += ["--stop-timeout", str(STOP_S)]
        command += self._init_options()
        command += _device_options(is_podman=self.is_podman)
        return [*command, *options, self._full_name(image), *rest]

    @property
    def has_init(self) -> bool:
        """Whether containers get a small init program as process 1."""
        return bool(self._init_options())

    @property
    def name(self) -> str:
        return Path(self._program).name

    @property
    def is_podman(self) -> bool:
        return self.name == "podman"

    def has_image(self, image: str) -> bool:
        """Return whether the image is on this VM. Raises EngineError if the engine does
        not answer.
        """
        result = self._run("image", "inspect", "--format", "{{.Id}}", self._full_name(image))
        if result.returncode != 0 and not _NO_IMAGE.search(result.stderr):
            raise EngineError(
                result.stderr.strip() or f"{self._program} ended with status {result.returncode}"
            )
        return result.returncode == 0

    def inspect(self, name: str) -> ContainerState | None:
        """Return the state of a container; None if it does not exist or the engine does
        not answer.
        """
        try:
            result = self._run("container", "inspect", "--format", "{{json .State}}", name)
            state = json.loads(result.stdout) if result.returncode == 0 else None
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

    def is_running(self, name: str) -> bool:
        """Return whether the container is known to run."""
        state = self.inspect(name)
        return state is not None and state.is_running

    def remove(self, *names: str) -> bool:
        """Remove containers in whatever state they are.

        Does nothing if they are gone. False: the engine failed.
        """
        try:
            return self._run("rm", "--force", "--volumes", *names).returncode == 0
        except EngineError:
            return False

    def remove_all(self) -> int:
        """Remove the containers that agents of this VM have started; return how many there were, or
        0 if the engine does not answer.
        """
        of_this_vm = f"label={LABEL}={self._vm}"
        try:
            ids = self._run("ps", "--all", "--quiet", "--filter", of_this_vm).stdout.split()
        except EngineError:
            return 0
        if ids:
            self.remove(*ids)
        return len(ids)

    def objects(self) -> dict[str, list[str]]:
        """Return the ids of containers, and the names of volumes and networks, by kind (`KINDS`).

        The networks that each engine has are left out. Raises EngineError if it does not answer.
        """
        return {
            kind: [name for name in self._lines(*listing) if name not in PREDEFINED_NETWORKS]
            for kind, (listing, _) in KINDS.items()
        }

    def remove_objects(self, kind: str, names: Sequence[str]) -> None:
        """Remove these; the caller looks whether that had an effect. Raises EngineError if the
        engine does not answer.
        """
        if names:
            self._run(*KINDS[kind][1], *names)

    def _lines(self, *arguments: str) -> list[str]:
        """Return the words that the command prints. Raises EngineError if it fails."""
        result = self._run(*arguments)
        if result.returncode != 0:
            raise EngineError(result.stderr.strip() or f"status {result.returncode}")
        return result.stdout.split()

    def _full_name(self, image: str) -> str:
        """Add the registry to a name without one: docker pulls such images from Docker Hub, podman
        from nowhere.
        """
        if not self.is_podman or registry_of(image) is not None:
            return image
        return f"{DOCKER_HUB}/{image}" if "/" in image else f"{DOCKER_HUB}/library/{image}"

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=COMMAND_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(str(error)) from error

    def _init_options(self) -> list[str]:
        """Return the options that make a small init program process 1, if one is installed where an
        engine may look.

        The kernel drops signals for process 1 that it has no handler for, also those that it sends
        to itself. A program without an init would therefore ignore SIGTERM, and live on after its
        own `kill(getpid(), SIGSEGV)`.
        """
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *INIT_FOLDERS])
        if not self.is_podman:
            return ["--init"] if shutil.which("docker-init", path=path) else []
        for name in PODMAN_INITS:
            program = shutil.which(name, path=path)
            if program is not None:
                return ["--init", "--init-path", os.path.realpath(program)]
        return []


def shared_memory_bytes() -> int:
    """Return the size of this machine's /dev/shm, which is half of its memory by default."""
    try:
        shared = os.statvfs("/dev/shm")  # noqa: S108 - only its size is read
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return shared.f_blocks * shared.f_frsize


def registry_of(image: str) -> str | None:
    """Return the host that the image's name begins with; None if it names no registry."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else None


def last_lines(engine_exit: ProgramExit) -> str:
    """Return the last lines that the engine's command printed, for an error message, without its
    hint at the manual.
    """
    lines = [line.strip() for line in engine_exit.tail.splitlines()]
    lines = [line for line in lines if line and not _HINT.match(line)]
    return (
        " ".join(lines[-LAST_LINES:]) or f"the engine ended with status {engine_exit.exit_status}"
    )


def _device_options(*, is_podman: bool) -> list[str]:
    """Source: the manuals of the engines and of Cloud TPU on accelerators in containers."""
    if has_gpu():
        return ["--device", "nvidia.com/gpu=all"] if is_podman else ["--gpus", "all"]
    if has_tpu():
        return ["--privileged"]
    return []
