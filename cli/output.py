"""How commands print: coloured and fitted at a terminal, plain and complete everywhere else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text


class Format(StrEnum):
    """What `--format` takes."""

    TABLE = "table"
    JSON = "json"


_COLOUR: Final = r"\x1b\[[0-9;]*m"
_CONTROL: Final = re.compile(rf"({_COLOUR})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""But for tabs and ends of lines: what moves a terminal's cursor, sets its title, or turns letters round."""


def visible(text: str) -> str:
    """What a job's program or a file says, as a terminal may show it: its colours stay, the rest is made visible."""
    return _CONTROL.sub(lambda found: found[1] or "\N{REPLACEMENT CHARACTER}", text)


def replica_word(state: str, *, has_ended: bool) -> str:
    """What a replica does, in a table: whatever it did, with its job it has ended."""
    return "ended" if has_ended and state != "COMPLETED" else state


def say(line: str) -> None:
    """One line of progress or result."""
    print(visible(line) if sys.stdout.isatty() else line, flush=True)  # noqa: T201 - this is where a command line prints


def complain(line: str) -> None:
    """One line of progress or errors, beside the result."""
    print(visible(line) if sys.stderr.isatty() else line, file=sys.stderr, flush=True)  # noqa: T201 - as above


def print_json(value: object) -> None:
    say(json.dumps(value, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """At a terminal a table in its width; otherwise columns apart by spaces, nothing cut off, for grep and awk."""
    if sys.stdout.isatty():
        if rows:
            _fitted(columns, rows)
        else:
            say("none")
        return
    lines = [[column.upper() for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _fitted(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(cell(column.upper()), overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    Console().print(table)


def cell(text: str) -> Text:
    """As it stands: rich takes `[/tmp]` in a plain string for markup."""
    from rich.text import Text

    return Text.from_ansi(visible(text))
