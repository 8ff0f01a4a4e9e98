"""Sentences about a value that a command cannot read, or an argument that it does not take.

typer passes on the sentences of pydantic, which name neither the value nor a correct one. The types
of typer's errors are in the copy of click that it contains, which does not export them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

from trainmaster.core.model.replica_id import ReplicaId

_QUOTED: Final = re.compile(r"'([^']*)'")
"""A choice in typer's list of them."""
_OTHER_COMMANDS: Final = {
    "list": "`trainmaster describe {}` shows one job",
    "cost": "`trainmaster describe {}` shows what one job costs",
    "runtimes": "leave it out, and all are listed",
}
"""Command without arguments → what shows the thing that an argument names."""


def clarify(error: Any) -> None:
    """Let the error of a wrong value say what is valid. Any other error stays as it is."""
    problems = getattr(error.__cause__, "errors", None)
    if problems and hasattr(error, "message"):
        error.message = _value_words(problems()[0])


def _value_words(problem: Any) -> str:
    """Return a sentence about a value. `problem`: one of pydantic's errors."""
    value, limits = problem["input"], problem.get("ctx", {})
    match problem["type"]:
        case "int_parsing" | "int_from_float" | "int_type":
            return f"must be a whole number, such as 10, not {value!r}"
        case "float_parsing" | "float_type":
            return f"must be a number, such as 1.5, not {value!r}"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}, not {value}"
        case "less_than_equal":
            return f"must be at most {limits['le']}, not {value}"
        case "value_error":
            return _choice_words(str(limits["error"]))
        case _:
            return str(problem["msg"])


def _choice_words(text: str) -> str:
    """Return typer's sentence about a word that is none of the choices, with the nearest one."""
    word, *choices = _QUOTED.findall(text) or [""]
    nearest = get_close_matches(word.lower(), [choice.lower() for choice in choices], n=1)
    return f"{text.rstrip('.')}; did you mean {nearest[0]}?" if nearest else text


def unexpected_words(command: str, takes: Sequence[str], extra: str, *, has_task_name: bool) -> str:
    """Return a sentence about an argument that a command does not take.

    `takes`: the arguments that it takes. `has_task_name`: whether an option chooses a replica.
    """
    if has_task_name and is_replica_name(extra):
        return f"Unexpected argument {extra!r}. Here: --task-name {extra}"
    beside = " and ".join(takes)
    taken = f"`{command}` takes {f'only {beside}' if beside else 'no argument'}"
    other = _OTHER_COMMANDS.get(command.rpartition(" ")[2])
    hint = f"; {other.format(extra)}" if other else ""
    return f"Unexpected argument {extra!r}: {taken}{hint}"


def is_replica_name(text: str) -> bool:
    """Return whether the text is the name of a replica, as in `worker-0`."""
    try:
        ReplicaId.parse(text)
    except ValueError:
        return False
    return True
