"""The shapes in which programs print a traceback, turned into the plain one of Python, which
`tracebacks.py` reads.

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

_TEXT = "Traceback (most recent call last)"
"""The first line of a traceback, as all shapes have it: rich prints no colon."""
# Sequences of a terminal: colours, and links
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# A time before a line, and a line with a time and a frame
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?(?=\S|\s+File )"
)
_STAMPED_FRAME = re.compile(_STAMP.pattern + r'[^"]{0,200}? {1,20}File "[^"]+", line \d+')
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
_BOX_FRAME = re.compile(r"(\S.*):(\d+) in (\S+)$")
_BOX_CODE = re.compile(r"[│|❱╭╰]")
"""In a line of source, or of the box of local variables."""
# The first line of IPython's traceback, and its frames
_NOTEBOOK = re.compile(r"[A-Za-z_][\w.]*\s{2,}Traceback \(most recent call last\):?$")
_NOTEBOOK_FRAME = re.compile(
    r"(?:File |Cell )?(?P<file>[~/][^:]*|In ?\[\d+\]|<ipython-input[^>]*>)"
    r"(?::(?P<line>\d+)(?:, in (?P<function>\w+))?|, line (?P<cell_line>\d+)| in .*)"
)
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
    """Remove the time before each line if frames have one, too.

    Python prints a traceback at once: such a time is that of a launcher, or of a logger that logs
    each line.
    """
    if not any(_STAMPED_FRAME.match(line) for line in lines):
        yield from lines
        return
    for line in lines:
        yield _STAMP.sub("", line, count=1) if _STAMP.match(line) else line


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
    for line in lines:
        if _TEXT in line and _NOTEBOOK.match(line):
            is_inside = True
            yield TRACEBACK
            continue
        frame = _NOTEBOOK_FRAME.match(line) if is_inside else None
        if frame:
            number = frame["line"] or frame["cell_line"] or "0"
            function = f", in {frame['function']}" if frame["function"] else ""
            yield f'  File "{frame["file"]}", line {number}{function}'
            continue
        if EXCEPTION.match(line):
            is_inside = False
        yield line


SHAPES = (
    Shape(
        "ANSI colours",
        "CPython 3.13, `traceback` with FORCE_COLOR; colorlog, colorama",
        _without_escapes,
    ),
    Shape(
        "a time before each line", "`docker logs --timestamps`, `ts` of moreutils", _without_stamps
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
        "a notebook", "IPython 8 `ultratb`, which papermill and nbconvert print", _from_notebooks
    ),
)
"""In the order in which they are applied: JSON may hold a box, and a box may be coloured."""


class Note(NamedTuple):
    """One row: how lines begin that follow a traceback and are no part of its message."""

    source: str
    pattern: re.Pattern[str]


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
)
