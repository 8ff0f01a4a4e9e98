"""Start an algorithm: read its arguments, run it, and turn a user's mistake into a message and an
exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from .arguments.argument import Values
from .arguments.parse import InvalidArgumentsError, parse_arguments
from .arguments.tables import TABLES
from .errors import DataError

USAGE_ERROR: Final = 2
"""Exit status of a mistake that a restart repeats: the platform does not retry it."""


def run(algorithm: str, train: Callable[[Values], None], arguments: Sequence[str]) -> int:
    """Run an algorithm and return the exit status. Other errors than the user's propagate."""
    try:
        parsed = parse_arguments(TABLES[algorithm], arguments)
        for note in parsed.notes:
            print(f"--{note.name} {note.requested}: {note.replacement}. {note.reason}", flush=True)
        train(parsed.values)
    except InvalidArgumentsError as error:
        return refuse(f"{algorithm} cannot run with these arguments", error)
    except DataError as error:
        return refuse(f"{algorithm} cannot train on these data", error)
    return 0


def refuse(what: str, error: Exception) -> int:
    """Print why the algorithm cannot run, and return the exit status."""
    print(f"{what}:\n{error}", file=sys.stderr, flush=True)
    return USAGE_ERROR
