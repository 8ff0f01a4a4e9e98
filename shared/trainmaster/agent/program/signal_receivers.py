"""Choosing the processes of a program that get a signal from the agent, and seeing that a launcher
has no processes left.

    find_catchers    for a request to save together with all programs of the job: only processes
                     with a handler
    find_receivers   for a request to save because this VM is about to stop, and for SIGTERM: the
                     command that the job named, whether it has a handler or not

Many processes have no handler for a signal and would die of it before they have saved: launchers,
shells, workers of data loaders that ran `exec`. `/proc/PID/status` says which signals a process
catches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from trainmaster.agent.program.launchers import find_launcher, is_launcher_word
from trainmaster.agent.program.process_table import (
    CHILD_CPU_TIMES,
    PARENT,
    STATE,
    ZOMBIE,
    descendants,
    read_stats,
)

SHELLS = frozenset(
    {
        "ash",
        "bash",
        "busybox",
        "catatonit",
        "dash",
        "docker-init",
        "dumb-init",
        "ksh",
        "sh",
        "tini",
        "zsh",
    }
)
"""Executables that wait for the command they run: shells, and the init programs of containers."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
RANKS_CPU_S = 0.5
"""If the ended processes of a launcher have used this CPU time or more, they were ranks, and not
only helpers.
"""
VALUE_OPTIONS = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python whose value is the next word of the command line."""


def find_catchers(roots: Collection[int], number: int) -> list[int]:
    """Return the topmost process of each branch that catches the signal, among `roots` and their
    descendants.

    Launchers never count. torchrun passes SIGTERM on, but kills after 30 s processes that still
    save, and SIGUSR1 ends it.
    """
    found = descendants(roots, read_stats(), lambda pid: is_catcher(pid, number))
    return [pid for pid in found if is_catcher(pid, number)]


def find_receivers(roots: Collection[int], number: int) -> list[int]:
    """Return `roots`, with shells replaced by the commands that they run.

    A shell without a trap ends at the signal, and where the shell is the first process of a
    container, its command is killed with it. Without the signal, it ends by itself after its
    command. Of several commands, such as those of a pipe, only those that catch the signal get it,
    if any do.
    """
    stats = read_stats()
    parents = {int(fields[PARENT]) for fields in stats.values()}

    def is_looked_through(pid: int) -> bool:
        return pid in parents and _is_shell(pid) and not catches(pid, number)

    found = descendants(roots, stats, lambda pid: not is_looked_through(pid))
    commands = [pid for pid in found if not is_looked_through(pid)]
    return [pid for pid in commands if catches(pid, number)] or commands


def waits_without_ranks(roots: Collection[int]) -> bool:
    """Return whether a launcher runs whose processes have all ended, and which waits for those of
    other machines.

    It has had processes: before they start, a launcher looks the same.
    """
    stats = read_stats()
    running = [pid for pid in descendants(roots, stats) if stats[pid][STATE] != ZOMBIE]
    launchers = [pid for pid in running if _waits(pid)]
    below = [pid for pid in running if int(stats[pid][PARENT]) in launchers]
    ticks = sum(int(field) for pid in launchers for field in stats[pid][CHILD_CPU_TIMES])
    has_had_ranks = ticks / _TICKS_PER_S >= RANKS_CPU_S
    return bool(launchers) and set(below) <= set(launchers) and has_had_ranks


def is_catcher(pid: int, number: int) -> bool:
    """Return whether the process catches the signal, and is no launcher."""
    return catches(pid, number) and not _is_launcher(pid)


def catches(pid: int, number: int) -> bool:
    """Return whether the process has a handler for the signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    for line in status.splitlines():
        name, _, mask = line.partition(":")
        if name == "SigCgt":
            return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def _is_shell(pid: int) -> bool:
    try:
        executable = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return Path(executable).name in SHELLS


def _is_launcher(pid: int) -> bool:
    return any(is_launcher_word(word) for word in _named_words(pid))


def _waits(pid: int) -> bool:
    launchers = map(find_launcher, _named_words(pid))
    return any(launcher is not None and launcher.waits for launcher in launchers)


def _named_words(pid: int) -> list[str]:
    """Return `words_of_program` of a process; none if it has ended."""
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return words_of_program(command_line.decode(errors="replace").split("\0"))


def words_of_program(words: Sequence[str]) -> list[str]:
    """Return the words of a command line that name what runs: the executable, and of Python also
    the script, or the module behind -m.

    Arguments of a program may have any name, such as `--strategy deepspeed` of a trainer.
    """
    named = list(words[:1])
    if not words or not PYTHON.fullmatch(words[0]):
        return named
    rest = iter(words[1:])
    for word in rest:
        if word in VALUE_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return [*named, word]
        elif word.startswith(("--", "-W", "-X")):  # with its value in the same word
            continue
        elif word.endswith("m"):  # also of several options in one word: -um
            return [*named, next(rest, "")]
        elif "c" in word:
            return named
    return named
