"""The tracebacks in a program's output: which lines belong to each, and the error that it names.

`printed_shapes` has already turned all lines into the form of Python. Several processes may print
to one output: a launcher, such as torchrun, and its workers, one for each rank. Each line of a
worker may then begin with a *prefix* such as "[rank0]: ", which tells the tracebacks of different
workers apart. All of it takes linear time, because a program may print anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trainmaster.agent.program.printed_shapes import (
    EXCEPTION,
    HEAD_LINES,
    TRACEBACK,
    starts_note,
)

MESSAGE_CHARS = 1024
"""Longest message of an error that is reported."""
CAUSES_MAX = 10
"""Most types of exceptions that are reported as causes of one error."""
TRAILING_LINES_MAX = 200
"""If more output follows a traceback, the program did not end with that error."""
STARTS_MAX = 64
"""How many tracebacks are read, the latest ones. Fewer processes fail at once on one machine."""
FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:, in (.+))?$')
"""A frame of a traceback: file, line, and function if Python names one."""
RANK = re.compile(r"\[rank\d+\]: ")
"""PyTorch puts it before each line of an error that ends a process of a group."""
REPEATED = "traceback : "
"""Before a traceback in the report of torchrun, which repeats what a rank has printed."""

_GROUP = "+ Exception Group "
"""Before the first line of an exception group's traceback. Its other lines begin with "| "."""
_PREFIX = re.compile(r"(?:\s|\[[^\]]*\]:?|<std(?:err|out)>:|\([^)]*\))*")
"""Prefixes of launchers, such as "[rank0]: ", "[1,0]<stderr>:", "(RayTrainWorker pid=7) ", and
pip's indentation.
"""
# A frame behind the label of a process, which is group 1
_LABELLED_FRAME = re.compile(r'(.*?)  File "[^"]+", line \d+')
_EXIT_HANDLER = "Exception ignored in atexit callback"
"""What Python prints before the traceback of a function of `atexit`."""
_BEHIND_BAR = re.compile(r"\S\r?(\[rank\d+\]: )?$")
"""The text before a traceback that begins in the line of tqdm's bar, which has no line end."""
# Names of log levels, which look like those of exceptions
_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
_NOISE = re.compile(
    rf"(?:{'|'.join(_LEVELS)})\b|[IWEF]\d\d\d\d |\[?\d\d\d\d-\d\d-\d\d[ T]"  # log lines
    # Python, exception groups, pip, mpirun, tqdm.
    r"|Exception ignored |\s*\+-|\[end of output\]|-{60}|\r"
)
"""The beginning of lines that end the message before them."""
# Paths of Python's own files, of installed packages, and of sources of Cython, which name no folder
# of packages; and the name of an installed package
_LIBRARIES = re.compile(
    r"(?:^<|/__autograph_generated_file|/lib(?:64)?/python3|/(?:site|dist)-packages/"
    r"|\.p(?:yx|xi|xd)$)"
)
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/([^/.]+)")
# What Python prints between the traceback of a cause and that of the exception it led to
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_CHAIN_LINES = 3
"""Lines before a traceback that `_CHAIN` may be in: the words, between two empty lines."""
_REMOTE = "RemoteTraceback:"
"""What multiprocessing, concurrent.futures and joblib print before a traceback of a process that
belongs to a pool.
"""
_REMOTE_LINES = 2
"""Lines before a traceback that `_REMOTE` may be in: the word, and the quotation mark after it."""


class Traceback(NamedTuple):
    """One traceback of an output, with the message behind it."""

    start: int
    """Number of its first line."""
    end: int
    """Number of the line before which it was read."""
    prefix: str
    """What each of its lines may begin with: the label of the process that printed it, or ""."""
    error: dict[str, Any]
    """The exception: `type`, `message`, `frame` and `own_frame` of ``error`` in docs/interfaces.md
    section 2.
    """


class TracebackReader:
    """Reads the tracebacks of an output, whose lines are in the form of Python."""

    def __init__(
        self, lines: list[str], package: str, *, takes_exit_handlers: bool = False
    ) -> None:
        """`package`: as in `is_own`. `takes_exit_handlers`: whether to read the errors of functions
        of `atexit`, too, which change no exit status.
        """
        self._lines = lines
        self._package = package
        self._prefixes: dict[int, str] = {}
        """Number of a traceback's first line → prefix of each of its lines, in order."""
        for number, line in enumerate(lines):
            line_before = lines[number - 1] if number else ""
            is_taken = takes_exit_handlers and _EXIT_HANDLER in line_before
            is_ignored = "Exception ignored" in line_before and not is_taken
            head = lines[number + 1 : number + 1 + HEAD_LINES]
            prefix = None if is_ignored else _prefix_of(line, head)
            if prefix is not None:
                self._prefixes[number] = prefix
        self._unranked_before = [0]
        """For each line, how many lines before it have no prefix of a rank."""
        for line in lines:
            self._unranked_before.append(self._unranked_before[-1] + (not RANK.match(line)))

    @property
    def latest_starts(self) -> list[int]:
        """First lines of the `STARTS_MAX` latest tracebacks, the latest first."""
        return list(self._prefixes)[: -STARTS_MAX - 1 : -1]

    def read(self, start: int, end: int) -> Traceback | None:
        """Return the traceback that begins at `start`, of which nothing is at or after `end`.

        None if it names no exception, or if more than `TRAILING_LINES_MAX` lines follow it.
        """
        prefix = self._prefixes[start]
        last = self._find_exception(start, end)
        if last is None:
            return None
        trailing_lines = self._unranked_before[end] - self._unranked_before[last]
        exception = EXCEPTION.match(self._line(last, prefix))
        if exception is None or trailing_lines > TRAILING_LINES_MAX:
            return None
        message = [exception.group(2) or "", *self._read_message(last, end, prefix)]
        lines = (self._line(number, prefix) for number in range(start + 1, last))
        frames = [frame for frame in map(FRAME.match, lines) if frame]
        own_frames = [frame for frame in frames if is_own(frame.group(1), self._package)]
        error = {
            "type": exception.group(1),
            "message": _shortened("\n".join(message).strip()),
            "frame": format_frame(frames[-1]) if frames else "",
            "own_frame": format_frame(own_frames[-1]) if own_frames else "",
        }
        return Traceback(start, end, prefix, error)

    def read_causes(self, start: int) -> list[str]:
        """Return the types of the exceptions that lead to the traceback whose first line is
        `start`, the latest first, `CAUSES_MAX` at most.

        The same process has printed them: other processes may print between two of them.
        """
        types: list[str] = []
        label = _label_of(self._prefixes[start])
        starts = [
            number
            for number, prefix in self._prefixes.items()
            if number < start and _label_of(prefix) == label
        ]
        while starts and self.has_cause(start) and len(types) < CAUSES_MAX:
            end = start
            start = starts.pop()
            cause = self.read(start, end)
            if cause is not None:
                types.append(cause.error["type"])
        return types

    def has_cause(self, start: int) -> bool:
        """Return whether Python says before the traceback whose first line is `start` that the one
        before it is its cause.
        """
        lines_before = self._lines[max(0, start - _CHAIN_LINES) : start]
        return any(words in line for words in _CHAIN for line in lines_before)

    def is_of_pool(self, start: int) -> bool:
        """Return whether the traceback whose first line is `start` is that of a process of a pool,
        which the process that waits for it has printed.
        """
        return any(_REMOTE in line for line in self._lines[max(0, start - _REMOTE_LINES) : start])

    def _find_exception(self, start: int, end: int) -> int | None:
        """Return the number of the line that names the exception of the traceback at `start`; None
        if the next traceback of the same process, or the line `end`, comes first.
        """
        prefix = self._prefixes[start]
        for number in range(start + 1, end):
            if self._prefixes.get(number) == prefix:
                return None
            exception = EXCEPTION.match(self._line(number, prefix))
            if not exception or exception.group(1) in _LEVELS:
                continue
            # A frame behind it shows that the line is of another process, and stands between two
            # frames of this traceback.
            is_last = number + 1 >= end or not FRAME.match(self._line(number + 1, prefix))
            if is_last:
                return number
        return None

    def _read_message(self, number: int, end: int, prefix: str) -> Iterator[str]:
        """Yield the lines of a message after its first one, which is line `number`."""
        is_labelled = prefix != "" and self._lines[number].startswith(prefix)
        for following in range(number + 1, end):
            is_of_another = following in self._prefixes or RANK.match(self._line(following, prefix))
            has_lost_label = is_labelled and not self._lines[following].startswith(prefix)
            if is_of_another or has_lost_label:
                return
            line = self._line(following, prefix)
            next_line = self._line(following + 1, prefix) if following + 1 < end else ""
            if _NOISE.match(line) or starts_note(line, next_line):
                return
            yield line

    def _line(self, number: int, prefix: str) -> str:
        """Return a line without the prefix."""
        line = self._lines[number]
        return line[len(prefix) :] if line.startswith(prefix) else line


def is_own(path: str, package: str) -> bool:
    """Return whether the file belongs to the program, not to Python or to a library.

    `package` is the top-level package of the program, or "": it is installed like a library, but
    its files are the program's own.
    """
    installed = _INSTALLED.match(path)
    if installed and package:
        return installed.group(1) == package
    return not _LIBRARIES.search(path)


def format_frame(frame: re.Match[str]) -> str:
    """Return `file:line in function`, with the last two components of the path: they are the same
    on every VM. The groups of `frame` are those of `FRAME`.
    """
    path, line, function = frame.groups()
    return "/".join(path.split("/")[-2:]) + f":{line}" + (f" in {function}" if function else "")


def _prefix_of(line: str, next_lines: list[str]) -> str | None:
    """Return the prefix of each line of the traceback that begins with this line; None if none
    does.
    """
    line = line.rstrip()
    if not line.endswith(TRACEBACK):
        return None
    prefix = line[: -len(TRACEBACK)]
    if prefix.endswith(_GROUP):
        return prefix[: -len(_GROUP)] + "| "
    if _PREFIX.fullmatch(prefix):
        return prefix
    bar = _BEHIND_BAR.search(prefix)
    return (bar[1] or "") if bar else _prefix_of_frame(prefix, next_lines)


def _prefix_of_frame(text: str, next_lines: list[str]) -> str | None:
    """Return the label of a traceback's lines, if its first line begins with `text`; None if no
    frame follows.

    A launcher labels each line of its processes. A logger writes a text before the first line only.
    """
    if text.endswith(REPEATED):
        return None
    labels = (frame.group(1) for frame in map(_LABELLED_FRAME.match, next_lines) if frame)
    return next((label for label in labels if text.startswith(label)), None)


def _label_of(prefix: str) -> str:
    """Return the label of a process: its tracebacks differ in indentation, and those of exception
    groups have a bar.
    """
    return prefix.rstrip(" |")


def _shortened(message: str) -> str:
    """Keep both ends of a long message: TensorFlow writes where an operation was defined, and then
    why it failed.
    """
    half = MESSAGE_CHARS // 2
    return message if len(message) <= MESSAGE_CHARS else f"{message[: half - 1]}…{message[-half:]}"
