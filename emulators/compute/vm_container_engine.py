"""The container engine of an emulated VM: this machine's, where it has one.

A VM has an engine to itself, emulated VMs share one. So `bin/docker` (or `podman`), first in a VM's PATH, is a small
script around the real client: what the VM starts gets the VM's marks as labels and finds what the VM's own programs
find in their environment (emulators, proxy, certificates), and the VM sees no containers but its own. A container is
no process of the VM's, so nothing that kills those reaches it: `vm_init` ends with `remove`, and so does the guard.

Standard library only, nothing of ours: `vm_init` becomes this file, run without site packages.
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

ENGINES: Final = ("docker", "podman")  # whose command lines are one and the same
HOST: Final = "DOCKER_HOST"
ENGINE_S: Final = 60.0
ROUNDS: Final = 20  # of removal: a container may still be in the making, or somebody else be removing it
OWN_TO_A_VM: Final = ("PATH", "HOME", "LANG")  # of its environment; everything else is its containers' as well

_CLIENT: Final = """\
#!/bin/sh
{host}case "${{1-}}" in
  run | create)
    verb="$1"
    shift
    : >{trace}
    exec {client} "$verb" {options} "$@"
    ;;
  ps)
    shift
    exec {client} ps --filter {label} "$@"
    ;;
esac
exec {client} "$@"
"""


def install(disk: Path, environment: Mapping[str, str], label: str, *more_labels: str) -> Path:
    """The folder of that VM's own programs. `label` (`NAME=VALUE`) is the VM's alone."""
    folder = disk / "bin"
    folder.mkdir(exist_ok=True)
    options = [f"--label={each}" for each in (label, *more_labels)]
    for name, value in environment.items():
        if name not in OWN_TO_A_VM:
            options.append(f"--env={name}={value}")
            if value.startswith("/") and Path(value).is_file():
                options.append(f"--volume={value}:{value}:ro")
    host = f"export {HOST}={shlex.quote(os.environ[HOST])}\n" if os.environ.get(HOST) else ""
    for client in _clients():
        own = folder / client.name
        own.write_text(
            _CLIENT.format(
                host=host,
                trace=shlex.quote(str(trace(disk))),
                client=shlex.quote(str(client)),
                options=shlex.join(options),
                label=shlex.quote(f"label={label}"),
            )
        )
        own.chmod(0o755)
    return folder


def trace(disk: Path) -> Path:
    """The file that is there once the VM has started a container."""
    return disk / "has-containers"


def signal_running(label: str, signum: int) -> int | None:
    """Signal the first process of the container that runs; its process id on this machine, None where none runs."""
    for client in _clients():
        for container in _ask(client, "ps", "--quiet", "--filter", f"label={label}"):
            pid = _ask(client, "inspect", "--format", "{{.State.Pid}}", container)
            if pid and _ask(client, "kill", "--signal", str(int(signum)), container):
                return int(pid[0])
    return None


def remove(label: str) -> None:
    """Every container with that label, running or not; where no engine answers, none."""
    for client in _clients():
        for _ in range(ROUNDS):
            found = _ask(client, "ps", "--all", "--quiet", "--filter", f"label={label}")
            if not found:
                break
            _ask(client, "rm", "--force", "--volumes", *found)
            time.sleep(0.05)


def _clients() -> Iterator[Path]:
    """Those of this machine; for a process of a VM, the VM's."""
    return (Path(found) for name in ENGINES if (found := shutil.which(name)) is not None)


def _ask(client: Path, *arguments: str) -> list[str]:
    """The words of its answer; none where it has no answer."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([client, *arguments], capture_output=True, text=True, timeout=ENGINE_S, check=True)
        return done.stdout.split()
    return []


if __name__ == "__main__":
    remove(sys.argv[1])
