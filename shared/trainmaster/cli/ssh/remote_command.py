"""The shell command that runs on the VM."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

SHELL: Final = ("sh", "-c", "exec $(command -v bash || echo sh)")
"""Bash, or sh in an image without bash."""
LABEL: Final = "trainmaster-vm"
"""Label of the agent's containers. Source: shared/trainmaster/agent/program/container_engine.py."""
NO_CONTAINER: Final = 3
"""Exit status if no container runs."""

_ENTER: Final = """\
fail() {{ echo "trainmaster: $1" >&2; exit {status}; }}
for name in docker podman; do command -v $name >/dev/null && engine=$name && break; done
[ -n "$engine" ] || fail "the VM has no container engine"
container=$({sudo}$engine ps --quiet --filter label={label} | head -n 1)
[ -n "$container" ] || fail "no container of the job runs on this VM"
exec {sudo}$engine exec {options} "$container" {command}"""


def as_shell_text(words: Sequence[str]) -> str:
    """Return the command as a shell reads it.

    One word is a line of shell; several words are a program's arguments.
    """
    return words[0] if len(words) == 1 else shlex.join(words)


def in_container(words: Sequence[str], *, has_terminal: bool, sudo: bool) -> str:
    """Return the shell command that runs `words` in the container of the training program.

    Without words it runs a shell there.
    """
    command = ("sh", "-c", as_shell_text(words)) if words else SHELL
    options = "--interactive --tty" if has_terminal else "--interactive"
    return _ENTER.format(
        sudo="sudo " if sudo else "",
        label=LABEL,
        options=options,
        command=shlex.join(command),
        status=NO_CONTAINER,
    )
