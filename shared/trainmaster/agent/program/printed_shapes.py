"""The shapes in which programs print a traceback, turned into the plain one of Python, which
`traceback_reader.py` reads.

    output ── plain_lines ──► lines as Python prints them ── parse_traceback ──► error

`SHAPES` is the table: each row rewrites the lines of one shape, and leaves all others as they are.
A new shape is a new row, with the source of its form. `NOTES` is the table of what other programs
print behind a traceback, which is no part of its message. Everything takes linear time: a program
may print anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

TRACEBACK = "Traceback (most recent call last):"
END = "-" * 60
"""A line that ends the message of the error before it."""
EXCEPTION = re.compile(r"([A-Za-z_][\w.<>]*)(?::\s(.*)|:)?$")
"""The line of a traceback that names the exception."""

_FIRST_LINES = (TRACEBACK, TRACEBACK + " ")
_TEXT = "Traceback (most recent call last)"
"""The first line of a traceback, as all shapes have it: rich prints no colon."""
# Sequences of a terminal: colours, and links
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# A time in the label of a line: a date or none, and the time of the day; the date of glog and absl,
# or of syslog; seconds since 1970
_STAMP = re.compile(
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ,]|(?<=[IWEF])\d{4} |\b[A-Z][a-z]{2} [ \d]\d )?"
    r"(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? ?"
    r"|\b\d{10}\.\d{1,9} ?"
)
# A frame of a traceback, after the label of its line
_FRAME_PLACE = re.compile(r'[^"]{0,200}? {1,20}File "[^"]+", line \d+')
_LABEL_MAX = 200
"""Longest label, in characters, in which a time is searched."""
HEAD_LINES = 3
"""Lines after the first line of a traceback in which its first frame is searched."""
# The arrow of loguru before the frame in which the error was caught
_ARROW = '> File "'
# What Ray adds to a line that other workers have printed, too
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
# The first line of a traceback whose line ends are escaped; the text before a quotation mark; an
# escaped character
_ESCAPED = f"{TRACEBACK}\\n"
_TO_QUOTE = re.compile(r'(?:\\.|[^"\\])*')
_PAIR = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)")
_UNESCAPED = {"n": "\n", "t": "\t", "r": ""}
# The first and the last line of a box of rich, and its parts
_BOX = re.compile(r"(.*?)[╭┌+][─\- ]*Traceback \(most recent call last\):?[─\- ]*[╮┐+]\s*$")
_BOX_END = re.compile(r"\s*[╰└+][─-]{3,}[╯┘+]\s*$")
_PATH_MAX = 1024
"""Longest path, in characters, that a box breaks into several lines."""
# A frame in a box: file, line and function
_BOX_FRAME = re.compile(r"(\S.*):(\d+) in (\S+)$")
_BOX_CODE = re.compile(r"[│|❱╭╰]")
"""In a line of source, or of the box of local variables."""
# The first line of IPython's traceback, and its frames
_NOTEBOOK = re.compile(r"[A-Za-z_][\w.]*\s{2,}Traceback \(most recent call last\):?$")
_NOTEBOOK_FRAME = re.compile(
    r"(?:File |Cell )?(?P<file>[~/][^:]*|In ?\[\d+\]|<ipython-input[^>]*>)"
    r"(?::(?P<line>\d+)(?:, in (?P<function>\w+))?|, line (?P<cell_line>\d+)"
    r"| in (?P<old_function>\w+).*)"
)
_NOTEBOOK_ARROW = re.compile(r"-+> ?(\d+) ")
"""The line of source that a frame of IPython 7 has reached: the frame itself has no number."""
_UNQUOTED_FRAME = re.compile(r"  File (?P<file>[^\s\":]+):(?P<line>\d+)(?: in (?P<function>\S+))?$")
"""A frame of IPython's form without source."""
# Sections of pytest's report, its frames, and a function
_PYTEST_BEGIN = re.compile(r"={3,} (?:FAILURES|ERRORS) ={3,}$")
_PYTEST_END = re.compile(r"={3,} .* ={3,}$")
_PYTEST_TEST = re.compile(r"_{3,} .* _{3,}$")
_PYTEST_FRAME = re.compile(
    r"(?P<file>[^\s:>]+):(?P<line>\d+): (?:in (?P<function>\S+)$|(?P<behind>.*))"
)
_PYTEST_FUNCTION = re.compile(r"    (?:async )?def (\w+)\(")
_NESTING_MAX = 20
"""Levels of a JSON object in which a traceback is searched."""


class Shape(NamedTuple):
    """One row: a way in which a traceback is printed."""

    name: str
    source: str
    rewrite: Callable[[Sequence[str]], Iterator[str]]
    """Rewrites the lines of an output."""


def plain_lines(output: str) -> list[str]:
    """Return the lines of an output, each traceback in the form in which Python prints it."""
    lines: Sequence[str] = [line.rstrip("\r") for line in output.rstrip().split("\n")]
    for shape in SHAPES:
        lines = list(shape.rewrite(lines))
    return list(lines)


def starts_note(line: str, next_line: str) -> bool:
    """Return whether the line after a traceback is no part of its message: another program, or a
    library, printed it.

    Two lines in a row that begin with the same label are of a program that labels its lines, such
    as `tracker: …`.
    """
    if any(note.pattern.match(line) for note in NOTES):
        return True
    label = _LABEL.match(line)
    return label is not None and next_line.startswith(label.group())


def _without_escapes(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield _ESCAPES.sub("", line) if "\x1b" in line else line


def _without_stamps(lines: Sequence[str]) -> Iterator[str]:
    """Remove the time from the label of each line if the first lines of a traceback have one: the
    label is the same for all lines then.

    Python prints a traceback at once: such a time is that of a launcher, or of a logger that logs
    each line.
    """
    labels: set[str] = set()  # what stands before the times
    for number, line in enumerate(lines):
        if line.endswith(_FIRST_LINES):
            labels |= _labels_before_stamps(line, lines[number + 1 : number + 1 + HEAD_LINES])
    if not labels:
        yield from lines
        return
    for line in lines:
        stamp = _STAMP.search(line, 0, _LABEL_MAX)
        is_label = stamp is not None and line[: stamp.start()] in labels
        yield line[: stamp.start()] + line[stamp.end() :] if stamp and is_label else line


def _labels_before_stamps(line: str, next_lines: Sequence[str]) -> set[str]:
    """Return what stands before the time of a traceback's first line, if it also stands before a
    time and a frame in one of the next lines.
    """
    stamp = _STAMP.search(line, 0, _LABEL_MAX)
    label = line[: stamp.start()] if stamp else ""
    for following in next_lines if stamp else ():
        time_of_frame = _STAMP.match(following, len(label))
        is_labelled = time_of_frame is not None and following.startswith(label)
        if time_of_frame and is_labelled and _FRAME_PLACE.match(following, time_of_frame.end()):
            return {label}
    return set()


def _without_marks(lines: Sequence[str]) -> Iterator[str]:
    """Remove what loguru and Ray add to single lines of a traceback."""
    for line in lines:
        text = line.replace(_ARROW, '  File "', 1) if _ARROW in line else line
        yield _REPEATED.sub("", text) if "[repeated " in text else text


def _from_json(lines: Sequence[str]) -> Iterator[str]:
    """Put the traceback of a JSON line in place of the line."""
    for line in lines:
        texts = _tracebacks_of(line) if "{" in line and _may_hold_error(line) else []
        for text in texts:
            yield from _ESCAPES.sub("", text).rstrip().split("\n")
            yield END
        if not texts:
            yield line


def _may_hold_error(line: str) -> bool:
    """Return whether a line of JSON is worth parsing, which takes longer than this search."""
    return _TEXT in line or '"exc_type"' in line


def _tracebacks_of(line: str) -> list[str]:
    """Return the tracebacks that the JSON object of a line holds, one of each text."""
    try:
        payload, _ = json.JSONDecoder().raw_decode(line, line.index("{"))
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(_texts(payload, _NESTING_MAX)))


def _texts(value: Any, nesting_left: int) -> Iterator[str]:
    """Yield the tracebacks in a value of JSON: texts that hold one, and structlog's dictionaries.

    A text may itself be JSON. Of a list of structlog's exceptions, only the first ended the
    program; the others are its causes.
    """
    if isinstance(value, str) and _TEXT in value:
        inner = _tracebacks_of(value) if "{" in value else []
        yield from inner or [value[value.rfind("\n", 0, value.index(_TEXT)) + 1 :]]
    elif nesting_left and isinstance(value, list):
        if TRACEBACK in value:  # a traceback in lines
            yield "\n".join(map(str, value[value.index(TRACEBACK) :]))
            return
        stacks = [item for item in value if isinstance(item, dict) and "exc_type" in item]
        if stacks:
            yield from map(_text_of_stack, stacks[:1])
            return
        for item in value:
            yield from _texts(item, nesting_left - 1)
    elif nesting_left and isinstance(value, dict):
        for item in value.values():
            yield from _texts(item, nesting_left - 1)


def _text_of_stack(stack: dict[str, Any]) -> str:
    """Return an exception of structlog's dictionaries as Python prints it."""
    frames = stack.get("frames")
    places = [
        f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}'
        for frame in (frames if isinstance(frames, list) else [])
        if isinstance(frame, dict)
    ]
    return "\n".join([TRACEBACK, *places, f"{stack['exc_type']}: {stack.get('exc_value', '')}"])


def _from_escapes(lines: Sequence[str]) -> Iterator[str]:
    """Put a traceback whose line ends are escaped in place of its line."""
    for line in lines:
        at = line.find(_ESCAPED)
        if at < 0:
            yield line
            continue
        yield from _ESCAPES.sub("", _unescaped(line[at:])).split("\n")
        yield END


def _unescaped(text: str) -> str:
    """Return the traceback that begins this text of JSON, logfmt or `repr`, which ends it."""
    is_quoted = '\\"' in text  # as in `File \"train.py\"`
    quoted = _TO_QUOTE.match(text) if is_quoted else None
    if quoted:
        text = quoted[0]
    else:
        body, _, rest = text.rpartition("\\n")
        text = text if any(map(str.isalnum, rest)) else body
    return _PAIR.sub(_unescape, text).rstrip()


def _unescape(pair: re.Match[str]) -> str:
    kind = pair[1]
    return chr(int(kind[1:], 16)) if len(kind) > 1 else _UNESCAPED.get(kind, kind)


def _from_boxes(lines: Sequence[str]) -> Iterator[str]:
    """Rewrite the box of rich: its frames, and the exception after it, without its indentation."""
    label = ""  # of a launcher, before each line
    indentation = ""
    is_inside = False
    path = ""  # the beginning of a path that is too long for one line
    for line, next_line in zip(lines, [*lines[1:], ""]):
        box = _BOX.match(line) if _TEXT in line else None
        if box:
            before = box.group(1)
            label = before if before.strip() and next_line.startswith(before) else ""
            indentation = "" if label else " " * len(before)
            is_inside = True
            path = ""
            yield label + TRACEBACK
        elif is_inside and _BOX_END.match(line[len(label) :]):
            is_inside = False
        elif is_inside:
            text = line[len(label) :].strip().strip("│|").strip()
            frame = _BOX_FRAME.match(path + text) or _BOX_FRAME.match(f"{path} {text}")
            if frame:
                yield f'{label}  File "{frame[1]}", line {frame[2]}, in {frame[3]}'
            is_part = bool(text) and not frame and not _BOX_CODE.search(text)
            path = (path + text)[-_PATH_MAX:] if is_part else ""
        elif indentation and line.startswith(indentation):
            yield line[len(indentation) :]
        else:
            indentation = ""
            yield line


def _from_notebooks(lines: Sequence[str]) -> Iterator[str]:
    """Rewrite IPython's traceback: its first line, and its frames."""
    is_inside = False
    unnumbered = ("", "")  # file and function of a frame whose line is not known yet
    for line in lines:
        if _TEXT in line and _NOTEBOOK.match(line):
            is_inside = True
            unnumbered = ("", "")
            yield TRACEBACK
            continue
        frame = (_NOTEBOOK_FRAME if is_inside else _UNQUOTED_FRAME).match(line)
        if frame:
            found = frame.groupdict()
            number = found["line"] or found.get("cell_line")
            if number:
                yield _frame(found["file"], number, found["function"])
            else:
                unnumbered = (found["file"], found["old_function"])
            continue
        arrow = _NOTEBOOK_ARROW.match(line) if unnumbered[0] else None
        if arrow:
            yield _frame(unnumbered[0], arrow[1], unnumbered[1])
            unnumbered = ("", "")
        if EXCEPTION.match(line):
            is_inside = False
        yield line


def _frame(file: str, line: str, function: str | None) -> str:
    """Return a frame as Python prints it."""
    return f'  File "{file}", line {line}' + (f", in {function}" if function else "")


class _TestReport:
    """One failed test in the report of pytest, as far as it was read."""

    def __init__(self) -> None:
        self.error: list[str] = []
        """The lines of the exception, which begin with E."""
        self.function = ""
        """The last one of which source was printed."""
        self.last_type = ""
        """Type of the exception, which the long form has behind the last frame."""
        self.has_frames = False
        self.is_native = False
        """Whether it has tracebacks as Python prints them."""

    def read(self, line: str) -> Iterator[str]:
        """Yield what Python would have printed instead of this line."""
        self.is_native = self.is_native or line.endswith(TRACEBACK)
        if self.is_native:
            yield line
            return
        frame = _PYTEST_FRAME.match(line)
        defined = _PYTEST_FUNCTION.match(line)
        if defined:
            self.function = defined[1]
        elif line.startswith("E  "):
            self.error.append(line[1:].strip())
        elif frame:
            yield from [] if self.has_frames else [TRACEBACK]
            self.has_frames = True
            yield _frame(frame["file"], frame["line"], frame["function"] or self.function)
            behind = frame["behind"] or ""
            if behind.isidentifier():
                self.last_type = behind
            elif behind:  # `--tb=line`, whose only line this is
                self.error = self.error or [behind]
                yield from self.end()

    def end(self) -> Iterator[str]:
        """Yield the exception and the end of its message. A failed `assert` has no type."""
        if self.has_frames and self.error:
            has_type = EXCEPTION.match(self.error[0]) is not None
            first = self.error[0]
            yield first if has_type else f"{self.last_type or 'AssertionError'}: {first}"
            yield from self.error[1:]
        yield END
        self.error = []
        self.has_frames = False


def _from_pytest(lines: Sequence[str]) -> Iterator[str]:
    """Rewrite the report of pytest: each failed test is a traceback, without source and locals."""
    report: _TestReport | None = None
    for line in lines:
        is_begin = _PYTEST_BEGIN.match(line) is not None
        is_end = _PYTEST_END.match(line) is not None
        is_test = _PYTEST_TEST.match(line) is not None
        if report and (is_end or is_test):
            yield from report.end()
        if is_begin or (report and is_test):
            report = _TestReport()
        elif is_end:
            report = None
        if is_begin or is_end or not report:
            yield line
        elif not is_test:
            yield from report.read(line)


SHAPES = (
    Shape(
        "ANSI colours",
        "CPython 3.13, `traceback` with FORCE_COLOR; colorlog, colorama",
        _without_escapes,
    ),
    Shape(
        "a time in the label of each line",
        "`docker logs --timestamps`, `kubectl logs --prefix --timestamps`, `ts` of moreutils,"
        " journalctl; absl 2.1, hydra 1.3 and `logging`, where a program logs line by line",
        _without_stamps,
    ),
    Shape(
        "marks of single lines",
        "loguru 0.7 `logger.catch`; Ray 2.40, its log deduplicator",
        _without_marks,
    ),
    Shape(
        "JSON lines",
        "python-json-logger `exc_info`; structlog `exception`; loguru `serialize=True`;"
        " google-cloud-logging `stack_trace`; ecs-logging `error.stack_trace`",
        _from_json,
    ),
    Shape("escaped line ends", "structlog's LogfmtRenderer; `repr` of a traceback", _from_escapes),
    Shape("a box", "rich 13 `traceback.install`, `RichHandler`; typer 0.12", _from_boxes),
    Shape(
        "a notebook",
        "IPython 7 to 9 `ultratb`, which papermill and nbconvert print",
        _from_notebooks,
    ),
    Shape("a report of tests", "pytest 8 `--tb=auto`, `long` and `short`", _from_pytest),
)
"""In the order in which they are applied: JSON may hold a box, and a box may be coloured."""


class Note(NamedTuple):
    """One row: how lines begin that follow a traceback and are no part of its message."""

    source: str
    pattern: re.Pattern[str]


# The label at the beginning of a line, such as `tracker:`
_LABEL = re.compile(r"[A-Za-z][\w.-]{1,30}:(?=\s|$)")
NOTES = (
    Note("W&B 0.18 `wandb: …`", re.compile(r"wandb:")),
    Note("Comet 3.47 `COMET INFO: …`", re.compile(r"COMET [A-Z]+:")),
    Note("Neptune 1.13, `[neptune] [info   ] …`", re.compile(r"\[neptune\]")),
    Note("MLflow 2.17 `🏃 View run … at: …`", re.compile(r"[🏃🧪] View (?:run|experiment) ")),
    Note("ClearML 1.16", re.compile(r"ClearML \w+(?: \w+)?:")),
    Note("Sentry 2.19, its atexit integration", re.compile(r"Sentry is attempting to send ")),
    Note("hydra 1.3", re.compile(r"Set the environment variable HYDRA_FULL_ERROR=1")),
    Note("Python's `warnings`", re.compile(r"\S+:\d+: \w*Warning: ")),
    Note("Python's `atexit`", re.compile(r"Error in atexit\.")),
    Note("PyTorch's ProcessGroup, C++ log", re.compile(r"\[rank\d+\]:\[[IWEF]\d{4} ")),
    Note("a JSON line of a logging library", re.compile(r"\{\"")),
    Note("tqdm 4.66, its bar", re.compile(r".{0,100}?\d%\|")),
    Note("rich 13 and Keras 3, their bars", re.compile(r".{0,100}?[━╸╺]{3}")),
    Note("JAX 0.4.30, about its own frames", re.compile(r"-{20}$|For simplicity, JAX has removed")),
    Note("Lightning 2.4, the other ranks", re.compile(r"\[rank: \d+\] Child process with PID ")),
    Note("Slurm 23, about the task", re.compile(r"(?:srun|slurmstepd): ")),
    Note("GNU make 4.3, about the recipe", re.compile(r"make(?:\[\d+\])?: \*\*\* ")),
)
