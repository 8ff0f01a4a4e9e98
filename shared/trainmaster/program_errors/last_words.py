"""The line with which a program without a traceback says why it exited.

It is often not the last line: `last_words` passes over what `TRAILERS` lists, and over the report
of a launcher.

    train.py: error: unrecognized arguments: --epoch     ◄── the last words
    make: *** [Makefile:2: train] Error 2
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Pattern, Sequence


class Trailer(NamedTuple):
    """One row: a line that programs print behind the one that says why they exited."""

    source: str
    pattern: Pattern[str]
    """Matches the beginning of the line."""


_TIME = r"\[?[\d\-:T.,/ Z+]*\]?"
_NAME = r"(?:[\w.]+[\s|:\-\]\[]+)?"
TRAILERS = (
    Trailer(
        "logging, loguru, hydra: levels below ERROR",
        re.compile(rf"{_TIME}[\s|\-\[]*{_NAME}(?:DEBUG|INFO|WARN|WARNING)\b"),
    ),
    Trailer("absl, glog: the same", re.compile(r"[IW]\d{4} \d\d:\d\d:")),
    Trailer("TensorFlow: the same", re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] ")),
    Trailer("Python's warnings", re.compile(r"(?:\S+:\d+: )?\w*Warning: ")),
    Trailer(
        "torchrun, about its ranks: from PyTorch 2.2 on, 2.1, and before",
        re.compile(
            r"[WE]\d{4} \S+ +\d+ (?:\S*torch/distributed/\S*|api\.py):\d+\]"
            r"|\[[\d\-:, ]+\] torch\.distributed\."
            r"|(?:WARNING|ERROR):torch\.distributed\."
        ),
    ),
    Trailer(
        "shells: traps of EXIT and ERR, without those that failed themselves",
        re.compile(
            r"(?!.*(?:fail|cannot|denied|no such|not found))(?:\S{1,300}: )?\W{0,8}"
            r"(?:clean(?:ing|ed)?[ -]?up\b|(?:done|finished|exiting|(?:good ?)?bye)\W*$"
            r"|exit(?:ed|ing)? (?:with )?(?:code|status)\b"
            r"|error (?:occurred )?(?:on|at|in|near) line \d+\W*$"
            r"|remov(?:ing|ed) (?:temporary|temp|scratch)\b)",
            re.IGNORECASE,
        ),
    ),
    Trailer(
        "bash, GNU time: what a command took",
        re.compile(
            r"(?:real|user|sys)\s+\d|(?:total|elapsed)[ _]time\b|[\d.]+user [\d.]+system "
            r"|\d+inputs\+\d+outputs|Command exited with non-zero status \d+$",
            re.IGNORECASE,
        ),
    ),
    Trailer("GNU make", re.compile(r"make(?:\[\d+\])?: \*\*\* ")),
    Trailer("conda run", re.compile(r"ERROR conda\.cli\.main_run:")),
    Trailer("Slurm", re.compile(r"(?:srun|slurmstepd): ")),
    Trailer(
        "absl, fire, click: where the help is",
        re.compile(
            r"Pass --help|(?:[Uu]sage|USAGE): |Try '|For detailed information on this command"
            r"|.{0,200} --help$"
        ),
    ),
    Trailer("tqdm, rich, Keras: bars", re.compile(r".{0,100}?(?:\d%\||[━╸╺]{3})")),
    Trailer("W&B", re.compile(r"wandb:")),
    Trailer("R", re.compile(r"Execution halted|Calls: ")),
    Trailer("Java, Node: frames", re.compile(r"\s+at \S|\s+\.\.\. \d+ more|Node\.js v\d")),
    Trailer("Rust", re.compile(r"note: run with `RUST_BACKTRACE")),
)
_WARNING = next(row.pattern for row in TRAILERS if row.source == "Python's warnings")
_TRACEBACK = "Traceback (most recent call last):"
_LAUNCHER_ERROR = re.compile(r"\S*(?:ChildFailedError|CalledProcessError: Command)\b")
"""What torchrun, Accelerate and others raise when a process that they started has failed."""


def last_words(text: str) -> str:
    """Return the line that says best why a program exited, of what it printed; empty if none may
    say it.

    Of a line that was drawn over itself, what it showed last.
    """
    return next(reversed(telling_lines(text)), "")


def closing_line(text: str) -> str:
    """Return the last words, or else the last line with a letter or digit before the report of a
    launcher; empty if there is none.
    """
    return last_words(text) or next(reversed(_before_report(_lines_of(text))), "").strip()


def telling_lines(text: str) -> list[str]:
    """Return the lines that may say why a program exited, in their order."""
    return [line.strip() for line in _without_trailers(_before_report(_lines_of(text)))]


def _lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in re.split(r"[\r\n]", text) if any(map(str.isalnum, line))]


def _before_report(lines: list[str]) -> list[str]:
    """Return the lines before the traceback of a launcher, and before the report in its message."""
    starts = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    for start in reversed(starts):
        if any(map(_LAUNCHER_ERROR.match, lines[start:])):
            return lines[:start]
    return lines


def _without_trailers(lines: Sequence[str]) -> Iterator[str]:
    is_after_warning = False  # the line of source that Python prints follows, indented
    for line in lines:
        is_source = is_after_warning and line.startswith(" ")
        is_after_warning = _WARNING.match(line) is not None
        if not is_source and not any(row.pattern.match(line) for row in TRAILERS):
            yield line
