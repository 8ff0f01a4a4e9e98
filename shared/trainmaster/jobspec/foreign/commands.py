"""From the commands of a task to the command of a job.

Packages that pip installs belong in requirements.txt, and torchrun finds its peers in the
environment, so most scripts become one command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

from trainmaster.jobspec.foreign.task import Notes

# Commands that install packages: those of pip's are named, what others install is not known.
_PIP: Final = re.compile(r"(?:uv )?(?:python3? -m )?pip3? install\s+(.*)")
_SYSTEM: Final = re.compile(r"(?:sudo )?(?:apt|apt-get|yum|conda|mamba|docker|dpkg)\b")
_SHELL: Final = re.compile(r"[\n$`|&;<>*?(){}~]|^[A-Za-z_]\w*=|^(?:cd|export|source|set)\b")
"""Syntax that only a shell understands."""
_TORCHRUN: Final = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b")
_PEERS: Final = re.compile(
    r"\s--(?:nnodes|node[-_]rank|master[-_](?:addr|port)|rdzv[-_]\w+)(?:=|\s+)"
    r"""(?:"[^"]*"|'[^']*'|\S+)"""
)
"""Arguments by which torchrun would find its peers. Here it reads them from its environment."""
# Shell commands by which scripts find the address of the first node, and the number of nodes.
_HEAD: Final = re.compile(
    r"""(?:`|\$\()\s*echo\s+"?\$\{?(?:SKYPILOT_NODE_IPS|DSTACK_NODES_IPS)\}?"?\s*\|\s*"""
    r"""head\s+-n?\s*1\s*(?:`|\))"""
)
"""The address of the first node: `$(echo "$SKYPILOT_NODE_IPS" | head -n1)`."""
_COUNT: Final = re.compile(
    r"""(?:`|\$\()\s*echo\s+"?\$\{?(?:SKYPILOT_NODE_IPS|DSTACK_NODES_IPS)\}?"?\s*\|\s*"""
    r"""wc -l\s*(?:`|\))"""
)
"""The number of nodes: `$(echo "$SKYPILOT_NODE_IPS" | wc -l)`."""
_FOREIGN_VARIABLE: Final = re.compile(r"(?:SKYPILOT|DSTACK)_\w+")
_CONTINUATION: Final = re.compile(r"(?:(?<!\s)\s+)?\\\n\s*")
"""The end of a line that goes on, with the space around it, from its first character on: a search
from each character of a long space would take seconds.
"""
# Folder that a line enters; name and value of a variable that it sets.
_ENTERED: Final = re.compile(r"cd\s+([^\s;&|]+)")
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(\S*)$")


def join_lines(text: str) -> list[str]:
    """Return the lines of a script, without empty ones and comments; continued lines as one."""
    joined = _CONTINUATION.sub(" ", text)
    lines = (line.strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def take_installation(lines: Iterable[str], path: str, notes: Notes) -> list[str]:
    """Name what installs packages, and return the other lines."""
    others: list[str] = []
    packages: list[str] = []
    folder = PurePosixPath()  # from the job's folder
    for line in lines:
        entered = _ENTERED.match(line)
        if entered:
            folder /= entered[1]
        pip = _PIP.fullmatch(line)
        if pip:
            packages += _packages(pip[1], folder)
        elif _SYSTEM.match(line):
            notes.add(
                f"{path}: {head_of(line)}",
                "build a container image with it, and name it as imageUri",
            )
        else:
            others.append(line)
    if packages:
        notes.add(path, f"add to requirements.txt: {', '.join(packages)}")
    return others


def head_of(line: str) -> str:
    """Return what the line runs, without arguments that may be secrets."""
    command, *arguments = [word for word in line.split() if word != "sudo"]
    has_subcommand = bool(arguments) and not re.search(r"[=$-]", arguments[0])
    return f"{command} {arguments[0]}" if has_subcommand else command


def _packages(arguments: str, folder: PurePosixPath) -> list[str]:
    """Return the packages of `pip install` in a folder, but for those of the job's own
    requirements.txt and the folder itself.
    """
    try:
        words = shlex.split(arguments)
    except ValueError:
        return [arguments]
    found = []
    words_before = ["", *words[:-1]]
    for before, word in zip(words_before, words, strict=True):
        if before in ("-r", "--requirement"):
            file = folder / word
            if file != PurePosixPath("requirements.txt"):
                found.append(f"the lines of {file}")
        elif not word.startswith("-") and not word.startswith("."):
            found.append(word)
    return found


def program_of(lines: Sequence[str], nodes: int, gpus: int, notes: Notes) -> list[str]:
    """Return the words of the command; a script that needs a shell is an argument of `bash`."""
    script = "\n".join(_translate(line, nodes, gpus) for line in lines)
    kept = [line for line in script.splitlines() if not _is_void(line, script)]
    script = "\n".join(kept)
    for name in sorted(set(_FOREIGN_VARIABLE.findall(script))):
        notes.add(name, "is not set here; RANK, WORLD_SIZE and MASTER_ADDR are, on several VMs")
    if len(kept) == 1 and not _SHELL.search(script):
        try:
            return shlex.split(script)
        except ValueError:  # an unclosed quote, which is the shell's to report
            pass
    return ["bash", "-ec", script]


def _translate(line: str, nodes: int, gpus: int) -> str:
    """Return the line with Trainmaster's variables, or values, in place of the other tool's."""
    line = _COUNT.sub(str(nodes), _HEAD.sub("$MASTER_ADDR", line))
    for pattern, replacement in (
        (r"SKYPILOT_NUM_NODES|DSTACK_NODES_NUM", str(nodes)),
        (r"SKYPILOT_NUM_GPUS_PER_NODE|DSTACK_GPUS_PER_NODE", str(max(gpus, 1))),
        (r"DSTACK_GPUS_NUM", str(max(gpus, 1) * nodes)),
        (r"SKYPILOT_NODE_RANK|DSTACK_NODE_RANK", "$RANK" if nodes > 1 else "0"),
        (r"DSTACK_MASTER_NODE_IP", "$MASTER_ADDR" if nodes > 1 else "localhost"),
    ):
        line = re.sub(rf"\$(?:{pattern})\b|\$\{{(?:{pattern})\}}", replacement, line)
    return _PEERS.sub("", line) if _TORCHRUN.search(line) else line


def _is_void(line: str, script: str) -> bool:
    """Return whether the line has no effect here.

    It sets a variable to itself, or it sets the address of the first node, which Trainmaster sets
    anyway, under a name that no other line reads.
    """
    assignment = _ASSIGNMENT.fullmatch(line)
    if assignment is None:
        return False
    name, quoted_value = assignment.groups()
    value = quoted_value.strip("\"'")
    is_itself = value in (f"${name}", f"${{{name}}}")
    is_of_platform = name in ("MASTER_ADDR", "MASTER_PORT") or value.startswith("$MASTER_ADDR")
    is_read = re.search(rf"\$\{{?{name}\b", script.replace(line, "", 1)) is not None
    return is_itself or (is_of_platform and not is_read)
