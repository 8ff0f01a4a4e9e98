"""The container engine of an emulated VM: this machine's, where it has one.

A VM has an engine to itself, emulated VMs share one. So `bin/docker`, first in a VM's PATH, is a small script around
the real client: what the VM starts gets the VM's marks as labels and finds what the VM's own programs find in their
environment (emulators, proxy, certificates), and the VM sees no containers but its own. A container is no process of
the VM's, so nothing that kills those reaches it: `vm_init` ends with `remove`, and so does the stack's guard.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ENGINE: Final = "DOCKER_HOST"
ENGINE_S: Final = 60.0
ROUNDS: Final = 20  # of removal: a container may still be in the making, or somebody else be removing it
OWN_TO_A_VM: Final = ("PATH", "HOME", "LANG")  # of its environment; everything else is its containers' as well

_CLIENT: Final = """\
#!/bin/sh
{engine}case "${{1-}}" in
  run | create)
    verb="$1"
    shift
    : >{trace}
    exec {docker} "$verb" {options} "$@"
    ;;
  ps)
    shift
    exec {docker} ps --filter {label} "$@"
    ;;
esac
exec {docker} "$@"
"""


def install(disk: Path, environment: Mapping[str, str], label: str, *more_labels: str) -> Path | None:
    """Where that VM's `docker` is now; None where this machine has none. `label` (`NAME=VALUE`) is the VM's alone."""
    docker = shutil.which("docker")
    if docker is None:
        return None
    options = [f"--label={each}" for each in (label, *more_labels)]
    for name, value in environment.items():
        if name not in OWN_TO_A_VM:
            options.append(f"--env={name}={value}")
            if value.startswith("/") and Path(value).is_file():
                options.append(f"--volume={value}:{value}:ro")
    engine = f"export {ENGINE}={shlex.quote(os.environ[ENGINE])}\n" if os.environ.get(ENGINE) else ""
    client = disk / "bin" / "docker"
    client.parent.mkdir(exist_ok=True)
    client.write_text(
        _CLIENT.format(
            engine=engine,
            trace=shlex.quote(str(trace(disk))),
            docker=shlex.quote(docker),
            options=shlex.join(options),
            label=shlex.quote(f"label={label}"),
        )
    )
    client.chmod(0o755)
    return client


def trace(disk: Path) -> Path:
    """The file that is there once the VM has started a container."""
    return disk / "has-containers"


def signal_running(label: str, signum: int) -> int | None:
    """Signal the first process of the container that runs; its process id on this machine, None where none runs."""
    for container in _ask("ps", "--quiet", "--filter", f"label={label}"):
        pid = _ask("inspect", "--format", "{{.State.Pid}}", container)
        if pid and _ask("kill", "--signal", str(int(signum)), container):
            return int(pid[0])
    return None


def remove(label: str) -> None:
    """Every container with that label, running or not; where no engine answers, none."""
    for _ in range(ROUNDS):
        found = _ask("ps", "--all", "--quiet", "--filter", f"label={label}")
        if not found:
            return
        _ask("rm", "--force", "--volumes", *found)
        time.sleep(0.05)


def _ask(*arguments: str) -> list[str]:
    """The words of the client's answer; none where it has no answer."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=ENGINE_S, check=True)
        return done.stdout.split()
    return []


if __name__ == "__main__":
    remove(sys.argv[1])
