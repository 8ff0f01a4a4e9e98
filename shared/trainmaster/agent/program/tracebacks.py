"""Finding the Python error that a program's output ends with.

`program.py` calls `parse_traceback` with the end of stdout and of stderr when a program has failed;
the result says in the exit report, and so to users, why it failed. `printed_shapes` first turns
what programs print into the form of Python, which is read here.

Several processes may print to one output: a launcher, such as torchrun, and its workers, one for
each rank. Each line of a worker may then begin with a *prefix* such as "[rank0]: ", which tells the
tracebacks of different workers apart. All of it takes linear time, because a program may print
anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from signal import Signals
from typing import Any, NamedTuple

from trainmaster.agent.program.launchers import LAUNCHERS, gather
from trainmaster.agent.program.printed_shapes import (
    EXCEPTION,
    HEAD_LINES,
    TRACEBACK,
    plain_lines,
    starts_note,
)
from trainmaster.program_errors.meaning import is_peer_loss, meaning_of

MESSAGE_CHARS = 1024
"""Longest message of an error that is reported."""
CAUSES_MAX = 10
"""Most types of exceptions that are reported as causes of one error."""
TRAILING_LINES_MAX = 200
"""If more output follows a traceback, the program did not end with that error."""
STARTS_MAX = 64
"""How many tracebacks are read, the latest ones. Fewer processes fail at once on one machine."""
BARE_LINES = 5
"""How many lines at the end of the output may contain an error without a traceback."""

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
_REPORTED = "traceback : "
"""Before a traceback in the report of torchrun, which repeats what a rank has printed."""
_RANK = re.compile(r"\[rank\d+\]: ")
"""PyTorch puts it before each line of an error that ends a process of a group."""
_BEHIND_BAR = re.compile(r"\S\r?(\[rank\d+\]: )?$")
"""The text before a traceback that begins in the line of tqdm's bar, which has no line end."""
# A frame of a traceback: file, line, function
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:, in (.+))?$')
_STACKS = re.compile(
    r"(?:\[[^\]]*\]:?\s*)?"
    r"(?:Fatal Python error: |(?:Current thread|Thread) 0x"
    r'|  File ".*", line \d+ in |Extension modules: )'
)
"""Stacks of Python's faulthandler follow the error of a program that aborts itself."""
# Names of log levels, which look like those of exceptions
_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
_NOISE = re.compile(
    rf"(?:{'|'.join(_LEVELS)})\b|[IWEF]\d\d\d\d |\[?\d\d\d\d-\d\d-\d\d[ T]"  # log lines
    # Python, exception groups, pip, mpirun, tqdm.
    r"|Exception ignored |\s*\+-|\[end of output\]|-{60}|\r"
)
"""The beginning of lines that end the message before them."""
_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): (.*)$")
# Paths of Python's own files, of installed packages, and of sources of Cython, which name no folder
# of packages; and the name of an installed package
_LIBRARIES = re.compile(
    r"(?:^<|/__autograph_generated_file|/lib(?:64)?/python3|/(?:site|dist)-packages/"
    r"|\.p(?:yx|xi|xd)$)"
)
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/([^/.]+)")
_LAUNCHER_TYPES = frozenset(gather(lambda launcher: launcher.error_types))
_LAUNCHER_FUNCTIONS = tuple(
    launcher.failing_function for launcher in LAUNCHERS if launcher.failing_function
)
_COMMANDS = "|".join(["python[0-9.]*", *gather(lambda launcher: launcher.commands)])
_WORKER_FAILED = re.compile(
    "|".join(
        [
            # subprocess, which accelerate, deepspeed and modules of users call: the command runs
            # Python or a launcher.
            rf"Command .*\b(?:{_COMMANDS})\b",
            *gather(lambda launcher: launcher.failures),
        ]
    )
)
"""The beginning of messages of CalledProcessError and RuntimeError that only say that a worker
failed.
"""
_LAUNCHES = re.compile(
    "|".join(
        rf"\b{re.escape(word)}"
        for word in [
            *gather(lambda launcher: launcher.commands),
            *gather(lambda launcher: launcher.modules),
        ]
    )
)
"""A launcher in the words of a command."""
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?\brank +: (\d+)", re.DOTALL)
"""The report of torchrun: the rank that failed first."""
_BEFORE_SIGNAL = [
    r"died with <Signals\.",  # subprocess
    *gather(lambda launcher: launcher.child_signals),
]
_CHILD_SIGNAL = re.compile(rf"(?:{'|'.join(_BEFORE_SIGNAL)})SIG(?!TERM|INT)\w+.*")
"""A worker was ended by a signal. Launchers themselves end the other workers with SIGTERM."""
# Lines of launchers about a worker's death; group `signal`, if any, is the signal's number
_DEATHS = [re.compile(death) for death in gather(lambda launcher: launcher.deaths)]
LAUNCHED = "ChildFailedError"
"""Type of the error that stands for a worker's death, as torchrun calls it."""
_ABORT = re.compile(
    r"(?:^|\S)F\d{4} \d\d:\d\d:[^\]]{1,200}\] (?P<log>.+)|^  what\(\):\s+(?P<exception>.+)"
    r"|^(?P<check>.{0,500}\bAssertion `.+' failed)\.?$"
    r"|^(?P<heap>(?:free|malloc|realloc|munmap_chunk)\(\): .+|double free or corruption.*"
    r"|corrupted (?:size|double).+|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*.*)$"
)
"""What a runtime prints before it aborts itself: a fatal log line of absl, C++'s uncaught
exception, or what glibc says about an `assert` or a damaged heap.
"""
# What Python prints between two chained exceptions
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
# What `python -m` prints if it finds no module: type of the error, and message
_NO_MODULE = re.compile(
    r"\S*python[\d.]*: (?:Error while finding module .*\((\w+): )?(No module named .*?|.*?)\)?$"
)


def parse_traceback(output: str, package: str = "") -> dict[str, Any] | None:
    """Return the error that the output ends with: the fields of ``error`` in docs/interfaces.md
    section 2.

    None if the output does not end with a Python error. The frame is empty if Python printed none,
    as for a module that does not exist. `package` is the top-level package of the program: it is
    installed like a library, but its frames are the program's own.

    Which error counts if there are several:

    - Of chained exceptions, the last one, since it ended the program. The types of the others are
      its causes.
    - The error of a launcher if it says that a signal ended a worker. Otherwise the last error that
      a worker printed before it, or the last one of the rank that torchrun calls the root cause.
    - The own error of a rank, before that of another rank of this machine that only lost a peer.
    """
    lines = [line for line in plain_lines(output) if not _STACKS.match(line)]
    for line in lines[-TRAILING_LINES_MAX:]:
        death = _describe_death(line)
        if death is not None:
            return {"type": LAUNCHED, "message": death, "frame": ""}
    reader = _TracebackReader(lines, package)
    end = len(lines)  # workers' errors are searched before that of their launcher
    candidates: list[_Candidate] = []  # the latest first
    awaiting_cause: set[str] = set()  # prefixes whose next traceback, backwards, is that of a cause
    root_prefix = ""  # prefix of the worker that failed first, if a launcher names it
    reported: dict[str, Any] | None = None  # the error that the report of a launcher has
    command: dict[str, Any] | None = None  # the error about a command that the program ran
    for start in reader.latest_starts:
        prefix = reader.prefixes[start]
        error = reader.read(start, end)
        if error is None:
            continue
        if _only_reports_worker(error) and not candidates:
            text = "\n".join(lines[start:end])
            # torchrun's report names the first failure last, after "Root Cause".
            killed = _CHILD_SIGNAL.search(text.rpartition("Root Cause")[2])
            if killed:
                # A worker that aborted itself has printed why, before its launcher's error.
                aborted = _find_bare_error(lines[:start]) if "SIGABRT" in killed.group() else None
                return aborted or {**error, "message": killed.group()}
            root_cause = _ROOT_CAUSE.search(text)
            root_prefix = f"[rank{root_cause.group(1)}]: " if root_cause else ""
            reported = reported or _read_report(text, package)
            command = command or (error if _is_of_own_command(error) else None)
            end = start
            continue
        is_cause_of_next = prefix in awaiting_cause
        awaiting_cause.discard(prefix)
        if _has_cause_before(lines, start):
            awaiting_cause.add(prefix)
        if is_cause_of_next:
            if candidates[-1].prefix == prefix:
                _use_frames_of_pool(candidates[-1].error, error, lines[max(0, start - 2) : start])
        else:
            causes = reader.read_causes(start)
            candidates.append(_Candidate(prefix, {**error, "causes": causes} if causes else error))
    chosen = _choose_error(candidates, root_prefix) or reported
    return chosen or _find_bare_error(lines[:end]) or command


def _is_of_own_command(error: dict[str, Any]) -> bool:
    """Return whether the program's own code has run a command that failed, and that is no launcher:
    its output may have been captured.
    """
    is_called_by_program = ".py:" in error["own_frame"]
    return is_called_by_program and not _LAUNCHES.search(error["message"])


def find_unreported_error(output: str, package: str = "") -> dict[str, Any] | None:
    """Return the error with which the output of a program ends that exited 0, as `parse_traceback`
    does; None if there is none.

    An exception is lost like this in a thread, a child process, a task of asyncio or an exit
    handler, and in a shell before `|` or `;`. A program may print errors that it survives: so it
    must be raised in the program's own code, and nothing but notes of other programs may follow.
    """
    lines = plain_lines(output)
    while lines and (not lines[-1].strip() or starts_note(lines[-1], "")):
        lines.pop()
    reader = _TracebackReader(lines, package, takes_exit_handlers=True)
    for start in reader.latest_starts[:1]:
        error = reader.read(start, len(lines))
        if error is not None and error["own_frame"] and _is_at_end(error, lines):
            return error
    return None


def _is_at_end(error: dict[str, Any], lines: list[str]) -> bool:
    """Return whether the last line is the last one of the error.

    Lines behind the first one of a message may also be what the program printed when it went on,
    unless they are indented.
    """
    printed = f"{error['type']}: {error['message']}" if error["message"] else str(error["type"])
    _, *further = printed.splitlines()
    is_one_message = all(line.startswith((" ", "\t")) or not line.strip() for line in further)
    return is_one_message and lines[-1].rstrip().endswith(printed.splitlines()[-1].rstrip())


def _read_report(text: str, package: str) -> dict[str, Any] | None:
    """Return the error in the report of torchrun; None if it has none.

    It has the traceback of a function with `@record`, indented by two spaces. The worker's own one
    is missing where its output goes to a file.
    """
    report = text.rpartition("Root Cause")[2].partition(_REPORTED)[2]
    lines = report.partition("\n===")[0].replace("\n  ", "\n").split("\n")
    if lines[0] != TRACEBACK:
        return None
    return _TracebackReader(lines, package).read(0, len(lines))


def _use_frames_of_pool(
    error: dict[str, Any], cause: dict[str, Any], lines_before: list[str]
) -> None:
    """Give the error the frames of its cause, if that is the same error in a process of a pool.

    Python raises an error of such a process again in the process that waits for it, so its own
    frames do not show where it happened. `lines_before`: those before the cause's traceback, as
    multiprocessing, concurrent.futures and joblib print them.
    """
    is_same = "RemoteTraceback:" in "".join(lines_before) and error["type"] == cause["type"]
    if is_same:
        error["frame"], error["own_frame"] = cause["frame"], cause["own_frame"]


class _Candidate(NamedTuple):
    """An error that may be why the program ended."""

    prefix: str
    """The prefix of the lines of the process that printed it; empty: they have none."""
    error: dict[str, Any]


def _choose_error(candidates: list[_Candidate], root_prefix: str) -> dict[str, Any] | None:
    """Return the error that ended the program; None if there is no candidate.

    It is that of the worker that a launcher names (`root_prefix`), or else the latest, which is the
    first candidate. If it only reports a lost peer, and another rank of this machine ended with an
    error of its own, that is the cause. Other prefixes than PyTorch's may also belong to an error
    that the program logged and survived.
    """
    if not candidates:
        return None
    of_root_cause = [entry for entry in candidates if entry.prefix.startswith(root_prefix)]
    chosen = (of_root_cause or candidates)[0]
    if not _reports_lost_peer(chosen.error) or not _RANK.match(chosen.prefix):
        return chosen.error
    latest: dict[str, dict[str, Any]] = {}
    for candidate in candidates:
        if _RANK.match(candidate.prefix):
            latest.setdefault(candidate.prefix, candidate.error)
    own_errors = (error for error in latest.values() if not _reports_lost_peer(error))
    return next(own_errors, chosen.error)


def _reports_lost_peer(error: dict[str, Any]) -> bool:
    return is_peer_loss(meaning_of(error["type"], error["message"], error.get("causes", ())))


def _describe_death(line: str) -> str | None:
    """Return what a launcher's line says about a worker's death; None if it says nothing."""
    for pattern in _DEATHS:
        death = pattern.search(line)
        if death is not None:
            number = death.groupdict().get("signal")
            return f"a process was ended by {Signals(int(number)).name}" if number else death[0]
    return None


def _only_reports_worker(error: dict[str, Any]) -> bool:
    """Return whether the error only says that a worker failed, whose own error says why."""
    name = error["type"].rpartition(".")[2]
    if name in ("CalledProcessError", "RuntimeError"):
        is_raised_by_launcher = error["frame"].endswith(_LAUNCHER_FUNCTIONS)
        return is_raised_by_launcher or bool(_WORKER_FAILED.match(error["message"]))
    return name in _LAUNCHER_TYPES


def _has_cause_before(lines: list[str], start: int) -> bool:
    """Return whether the traceback before the one whose first line is `start` is its cause."""
    return any(words in line for words in _CHAIN for line in lines[max(0, start - 3) : start])


class _TracebackReader:
    """Reads the tracebacks of an output, whose lines are in the form of Python."""

    def __init__(
        self, lines: list[str], package: str, *, takes_exit_handlers: bool = False
    ) -> None:
        """`takes_exit_handlers`: whether to read the errors of functions of `atexit`, too, which
        change no exit status.
        """
        self._lines = lines
        self._package = package
        self.prefixes: dict[int, str] = {}
        """Number of a traceback's first line → prefix of each of its lines, in order."""
        for number, line in enumerate(lines):
            line_before = lines[number - 1] if number else ""
            is_taken = takes_exit_handlers and _EXIT_HANDLER in line_before
            is_ignored = "Exception ignored" in line_before and not is_taken
            head = lines[number + 1 : number + 1 + HEAD_LINES]
            prefix = None if is_ignored else _prefix_of(line, head)
            if prefix is not None:
                self.prefixes[number] = prefix
        self._unranked_before = [0]
        """For each line, how many lines before it have no prefix of a rank."""
        for line in lines:
            self._unranked_before.append(self._unranked_before[-1] + (not _RANK.match(line)))

    @property
    def latest_starts(self) -> list[int]:
        """First lines of the latest tracebacks, the latest first."""
        return list(self.prefixes)[: -STARTS_MAX - 1 : -1]

    def read(self, start: int, end: int, package: str | None = None) -> dict[str, Any] | None:
        """Return type, message and frames of the error whose traceback begins at `start`; None if
        it is not at the end of the lines before `end`.
        """
        package = self._package if package is None else package
        prefix = self.prefixes[start]
        frame = own_frame = ""
        for number in range(start + 1, end):
            if self.prefixes.get(number) == prefix:
                return None  # another traceback begins
            line = self._line(number, prefix)
            file = _FRAME.match(line)
            if file:
                frame = format_frame(file)
                own_frame = frame if is_own(file.group(1), package) else own_frame
                continue
            error = EXCEPTION.match(line)
            # Lines of other processes may come between frames: skip them as long as frames follow.
            frame_follows = number + 1 < end and _FRAME.match(self._line(number + 1, prefix))
            if not error or error.group(1) in _LEVELS or frame_follows:
                continue
            if self._unranked_before[end] - self._unranked_before[number] > TRAILING_LINES_MAX:
                return None
            message = [error.group(2) or "", *self._read_message(number, end, prefix)]
            text = _shortened("\n".join(message).strip())
            return {"type": error.group(1), "message": text, "frame": frame, "own_frame": own_frame}
        return None

    def read_causes(self, start: int) -> list[str]:
        """Return the types of the exceptions that lead to the traceback whose first line is
        `start`, the latest first.
        """
        types: list[str] = []
        starts = [number for number in self.prefixes if number < start]
        while starts and _has_cause_before(self._lines, start) and len(types) < CAUSES_MAX:
            end = start
            start = starts.pop()
            error = self.read(start, end, "")
            if error is not None:
                types.append(error["type"])
        return types

    def _read_message(self, number: int, end: int, prefix: str) -> Iterator[str]:
        """Yield the lines of a message after its first one, which is line `number`."""
        is_labelled = prefix != "" and self._lines[number].startswith(prefix)
        for following in range(number + 1, end):
            is_of_another = following in self.prefixes or _RANK.match(self._line(following, prefix))
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
    if text.endswith(_REPORTED):
        return None
    labels = (frame.group(1) for frame in map(_LABELLED_FRAME.match, next_lines) if frame)
    return next((label for label in labels if text.startswith(label)), None)


def _shortened(message: str) -> str:
    """Keep both ends of a long message: TensorFlow writes where an operation was defined, and then
    why it failed.
    """
    half = MESSAGE_CHARS // 2
    return message if len(message) <= MESSAGE_CHARS else f"{message[: half - 1]}…{message[-half:]}"


def is_own(path: str, package: str) -> bool:
    """Return whether the file belongs to the program, not to Python or to a library."""
    installed = _INSTALLED.match(path)
    if installed and package:
        return installed.group(1) == package
    return not _LIBRARIES.search(path)


def _find_bare_error(lines: list[str]) -> dict[str, Any] | None:
    """Find an error without a traceback: a syntax error in the main file, a missing module, or why
    a runtime aborts.
    """
    first = max(0, len(lines) - BARE_LINES)
    for number in range(len(lines) - 1, first - 1, -1):
        error = _SYNTAX.match(lines[number])
        if error:
            files = [
                file
                for file in map(_FRAME.match, lines[max(0, number - BARE_LINES + 1) : number])
                if file
            ]
            if files:
                return {
                    "type": error.group(1),
                    "message": error.group(2),
                    "frame": format_frame(files[-1]),
                }
        missing = _NO_MODULE.match(lines[number])
        is_of_python = "No module named" in lines[number]
        if missing and (missing.group(1) or is_of_python):
            return {
                "type": missing.group(1) or "ModuleNotFoundError",
                "message": missing.group(2),
                "frame": "",
            }
    for line in reversed(lines[-TRAILING_LINES_MAX:]):
        abort = _ABORT.search(line)
        if abort:
            message = next(filter(None, abort.groups()))
            return {"type": "Aborted", "message": message[:MESSAGE_CHARS], "frame": ""}
    return None


def format_frame(file: re.Match[str]) -> str:
    """Return `file:line in function`, with the last two components of the path: they are the same
    on every VM.
    """
    path, line, function = file.groups()
    return "/".join(path.split("/")[-2:]) + f":{line}" + (f" in {function}" if function else "")
