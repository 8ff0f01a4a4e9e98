"""The container engine of an emulated VM: the engine of this machine, if it has one.

A real VM has its own engine; emulated VMs share one. `bin/docker` (or `podman`), first in the VM's
PATH, is therefore a script around the real client. It adds the VM's labels and environment
(emulators, proxy, certificates) to each new container, and lists only the VM's containers.
Containers are not processes of the VM, so killing its processes does not end them: `vm_init` and
the stack's watchdog call `remove_containers`.

This file uses the standard library only: `vm_init` runs it as a program without site packages.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ENGINES: Final = ("docker", "podman")  # their command lines are compatible
HOST: Final = "DOCKER_HOST"
ENGINE_S: Final = 60.0
REMOVE_PAUSE_S: Final = 0.05
REMOVE_ATTEMPTS: Final = 20
"""Removal is repeated: a container may not be complete yet, or another process may be removing it.
"""
VM_ONLY_VARIABLES: Final = ("PATH", "HOME", "LANG")
"""Variables of a VM that its containers do not get."""

_CLIENT: Final = """\
#!/bin/sh
{host}case "${{1-}}" in
  run | create)
    verb="$1"
    shift
    : >{marker}
    exec {client} "$verb" {options} "$@"
    ;;
  ps)
    shift
    exec {client} ps --filter {label} "$@"
    ;;
esac
exec {client} "$@"
"""


def install_clients(
    disk: Path, environment: Mapping[str, str], label: str, *more_labels: str
) -> Path:
    """Write the VM's engine clients and return their folder.

    `label` (`NAME=VALUE`) is unique to the VM.
    """
    folder = disk / "bin"
    folder.mkdir(exist_ok=True)
    options = [f"--label={name_and_value}" for name_and_value in (label, *more_labels)]
    for name, value in environment.items():
        if name not in VM_ONLY_VARIABLES:
            options.append(f"--env={name}={value}")
            is_path_of_file = value.startswith("/") and Path(value).is_file()
            if is_path_of_file:
                options.append(f"--volume={value}:{value}:ro")
    engine = os.environ.get(HOST)
    host = f"export {HOST}={shlex.quote(engine)}\n" if engine else ""
    for client in _clients():
        script = folder / client.name
        script.write_text(
            _CLIENT.format(
                host=host,
                marker=shlex.quote(str(container_marker(disk))),
                client=shlex.quote(str(client)),
                options=shlex.join(options),
                label=shlex.quote(f"label={label}"),
            )
        )
        script.chmod(0o755)
    return folder


def container_marker(disk: Path) -> Path:
    """Return the file that exists as soon as the VM has started a container."""
    return disk / "has-containers"


def signal_container(label: str, signum: int) -> int | None:
    """Signal the first process of the running container.

    Return its process id on this machine, None if none runs.
    """
    for client in _clients():
        for container in _run(client, "ps", "--quiet", "--filter", f"label={label}"):
            pid = _run(client, "inspect", "--format", "{{.State.Pid}}", container)
            if pid and _run(client, "kill", "--signal", str(int(signum)), container):
                return int(pid[0])
    return None


def remove_containers(label: str) -> None:
    """Remove all containers with that label, running or not. Does nothing if no engine responds."""
    for client in _clients():
        for _ in range(REMOVE_ATTEMPTS):
            containers = _run(client, "ps", "--all", "--quiet", "--filter", f"label={label}")
            if not containers:
                break
            _run(client, "rm", "--force", "--volumes", *containers)
            time.sleep(REMOVE_PAUSE_S)


def stop_containers(label: str) -> None:
    """Stop all running containers with that label, as the engine does when its VM shuts down: by
    the container's own signal, and by SIGKILL after the container's own time.
    """
    for client in _clients():
        if containers := _run(client, "ps", "--quiet", "--filter", f"label={label}"):
            _run(client, "stop", *containers)


def _clients() -> Iterator[Path]:
    """Yield the clients on PATH: this machine's or, in a process of a VM, the VM's."""
    for name in ENGINES:
        path = shutil.which(name)
        if path is not None:
            yield Path(path)


def _run(client: Path, *arguments: str) -> list[str]:
    """Run a client and return the words of its output, none if it fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [client, *arguments], capture_output=True, text=True, timeout=ENGINE_S, check=True
        )
        return done.stdout.split()
    return []


if __name__ == "__main__":
    if sys.argv[2:] == ["stop"]:
        stop_containers(sys.argv[1])
    else:
        remove_containers(sys.argv[1])
