"""The help of every command says what to write, in words of users and not of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from trainmaster.cli.main import app

TYPE = re.compile(r"<(?![a-z-]+(\|[a-z-]+)+>)[^>]*>")
"""What typer writes for a value without a metavar: <str>, <int range>; but not the words that a
value can be: <table|json>.
"""


def commands(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    yield command, context
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            yield from commands(inner, type(context)(inner, info_name=name, parent=context))


ROOT: Any = typer.main.get_command(app)
COMMANDS = {
    str(context.command_path): (command, context)
    for command, context in commands(ROOT, ROOT.context_class(ROOT, info_name="trainmaster"))
}


def names(path: str, kind: str) -> list[str]:
    """Return how the help names the parameters of a kind: `argument` or `option`."""
    command, context = COMMANDS[path]
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if parameter.param_type_name == kind
    ]
    return [record[0] for record in records if record]


@pytest.mark.parametrize("path", COMMANDS)
def test_values_have_names_and_no_types(path: str) -> None:
    shown = [*names(path, "argument"), *names(path, "option")]
    assert [name for name in shown if TYPE.search(name)] == []
    assert [name for name in names(path, "argument") if not re.search("[A-Z]{2}", name)] == []


def test_all_commands_are_looked_at() -> None:
    assert {"trainmaster why", "trainmaster schedule create", "trainmaster local up"} <= set(
        COMMANDS
    )
    assert len(COMMANDS) > 50
