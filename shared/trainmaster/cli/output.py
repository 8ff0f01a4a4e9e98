"""How commands print: coloured and fitted at a terminal, plain and complete everywhere else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TextIO

from trainmaster.presentation.printable import make_visible, printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from trainmaster.jobspec.problems import InvalidJob


ATTENTION: Final = "attention"
"""Column of tables whose texts need attention: they are yellow at a terminal."""


class Format(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    JSON = "json"


def replica_state_word(state: str, *, job_has_ended: bool) -> str:
    """Return a replica's state for tables.

    In a job that has ended, every replica that did not complete is "ended".
    """
    return "ended" if job_has_ended and state != "COMPLETED" else state


def say(line: str) -> None:
    """Print a line of the result to standard output."""
    print(_safe(line, sys.stdout), flush=True)  # noqa: T201 - the command line prints here


def warn(line: str) -> None:
    """Print a line of the result that needs attention: in yellow at a terminal."""
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(literal_text(line), style="yellow")
    else:
        say(line)


def complain(line: str) -> None:
    """Print a line of progress, or an error, to standard error."""
    print(_safe(line, sys.stderr), file=sys.stderr, flush=True)  # noqa: T201 - as above


def _safe(line: str, stream: TextIO) -> str:
    """Return the line without what could harm a terminal.

    Many lines contain texts of programs, and a file or a pipe may reach a terminal later.
    """
    return make_visible(line) if stream.isatty() else printable(line)


def print_json(value: object) -> None:
    say(json.dumps(value, indent=2, default=str))


def print_result(
    form: Format, items: Iterable[object], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print the items as JSON, or the rows as a table, as `--format` says."""
    if form is Format.JSON:
        print_json(list(items))
    else:
        print_table(columns, rows)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, fitted to a terminal; elsewhere of full width, for grep and awk."""
    if sys.stdout.isatty():
        if rows:
            from rich.console import Console

            Console().print(fitted_table(columns, rows))
        else:
            say("none")
        return
    lines = [[column.upper() for column in columns], *([*map(_in_one_line, row)] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def fitted_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, of_numbers: bool = False
) -> Table:
    """Return a table that rich fits to the terminal.

    `of_numbers`: all columns but the first one are on the right.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if of_numbers and number else "left"
        style = "yellow" if column == ATTENTION else ""
        header = literal_text(column.upper())
        table.add_column(header, justify=justify, overflow="fold", style=style)
    for row in rows:
        table.add_row(*(literal_text(_in_one_line(cell)) for cell in row))
    return table


def _in_one_line(cell: str) -> str:
    """Return the text of a cell so that it begins no row: people choose the names of jobs."""
    return " ".join(cell.splitlines())


def literal_text(text: str) -> Text:
    """Return text for rich that it prints as it is: in a plain string, `[/tmp]` would be markup."""
    from rich.text import Text

    return Text.from_ansi(make_visible(text))


def problems_text(invalid: InvalidJob) -> str:
    """Return the problems of a file, each on a line of its own, with a correct value."""
    text = ""
    for problem in invalid.problems:
        end = "" if problem.problem.endswith("?") else "."
        text += f"\n  {problem.field}: {problem.problem}{end} Example: {problem.example}"
    return text
