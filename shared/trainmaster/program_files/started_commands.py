"""The commands that a job's command starts: itself, or those of a shell's script.

A guess for what reads programs before they run. No shell is run, and variables are not replaced.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.program_files.command import (
    inline_script,
    is_shell,
    program_name,
    script_of,
)
from trainmaster.program_files.findings import ProgramFiles
from trainmaster.program_files.wrappers import unwrapped

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
"""A variable before a command of a shell."""
_KEYWORDS: Final = ("do", "then", "else", "if", "while", "!", "{")
"""Words of a shell that stand before a command."""
_OPERATOR: Final = re.compile(r"[;&|()]+")
"""What ends a command in a line of a shell."""
_LAUNCHER_MODULES: Final = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
"""Module that `python -m` runs → the launcher that does the same."""
_DEPTH_MAX: Final = 4
"""Scripts that start each other, at most."""


def started_commands(command: Sequence[str], files: ProgramFiles) -> Iterator[list[str]]:
    """Yield the commands that are not shells, each as its words, in the order of their text.

    `files`: where scripts of the folder are found. Each of them is read once, so that scripts that
    start each other, or themselves, take no longer than their text.
    """
    return _commands_below(command, files, read=set(), depth=0)


def _commands_below(
    command: Sequence[str], files: ProgramFiles, read: set[str], depth: int
) -> Iterator[list[str]]:
    """Yield the commands that a command starts. `read`: texts of the scripts that were read, which
    is extended. `depth`: scripts that have started this command.
    """
    words = _without_wrappers(command)
    if not words:
        return
    script = _shell_text(words, files)
    if script is None or depth == _DEPTH_MAX:
        yield _as_launcher(words)
        return
    if script in read:
        return
    read.add(script)
    for line in re.sub(r"\\\n", " ", script).splitlines():
        for inner in _commands_of(line):
            yield from _commands_below(inner, files, read, depth + 1)


def _without_wrappers(command: Sequence[str]) -> list[str]:
    """Return the command behind keywords and variables of a shell, and behind wrappers."""
    words = list(command)
    while words:
        is_of_shell = words[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[0])
        inner = words[1:] if is_of_shell else unwrapped(words)
        if inner == words:
            break
        words = inner
    return words


def _shell_text(words: Sequence[str], files: ProgramFiles) -> str | None:
    """Return the text that a shell runs; None: the command is none, or its script is not known."""
    name = script_of(words)
    if not is_shell(words) and not (name is not None and name.endswith(".sh")):
        return None
    inline = inline_script(words[1:])
    if inline is not None:
        return inline
    path = (name or "").removeprefix("./")
    if path not in files.names:
        return None
    return files.read(path).decode(errors="replace")


def _commands_of(line: str) -> Iterator[list[str]]:
    """Yield the commands of a line of a shell; none of a line that cannot be split."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words: list[str] = []
    try:
        for word in reader:
            if _OPERATOR.fullmatch(word):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # an open quote: it may end in another line
        return
    yield words


def _as_launcher(words: list[str]) -> list[str]:
    """Return `python -m torch.distributed.run …` and `/opt/bin/torchrun …` as `torchrun …`."""
    words = [program_name(words[0]), *words[1:]]
    if words[0].startswith("python") and words[1:2] == ["-m"] and len(words) > 2:  # noqa: PLR2004
        launcher = _LAUNCHER_MODULES.get(words[2])
        if launcher:
            return [launcher, *words[3:]]
    return words
