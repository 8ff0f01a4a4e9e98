"""Limits on what any document may consist of: plain JSON of bounded depth, size, numbers and text.

All later steps rely on these limits, so that any document leads to a plan or to a list of problems,
never to another error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from trainmaster.jobspec.problems import ROOT, InvalidJob, Problem, quoted

DEPTH_MAX: Final = 32
"""Levels of lists and mappings: all later steps may recurse."""
NODES_MAX: Final = 50_000
"""Values of a document in all."""
_PATH_CHARS_MAX: Final = 200
"""Characters of a path in a message."""
_INT64: Final = range(-(2**63), 2**63)
JOB_EXAMPLE: Final = "jobId: digits_1, trainingInput: {region: us-central1, …}"


def invalid(problem: str, example: str) -> InvalidJob:
    """Return the problem of a document that cannot be parsed.

    It concerns the whole document, and says where in it.
    """
    return InvalidJob([Problem(ROOT, problem, example=example)])


def too_deep(where: str) -> InvalidJob:
    """Return the problem of a document that is nested too deeply at the place `where`."""
    return invalid(
        f"{where}: nested more than {DEPTH_MAX} levels deep", "trainingInput: {args: []}"
    )


def line_and_column(before: str) -> tuple[int, int]:
    """Return the place, counted from 1, that follows this text."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def copy_as_json(document: Mapping[str, object]) -> tuple[dict[str, object], tuple[Problem, ...]]:
    """Return a deep copy that is plain JSON, and its problems.

    A value with a problem is null in the copy.

    Raises InvalidJob for a document that is too large or too deep to be copied.
    """
    copier = _Copier()
    copy = copier.copy_mapping(document, path="", depth=1)
    return copy, tuple(copier.problems)


class _Copier:
    """Copies a document, and collects the problems of its values."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._nodes = 0

    def copy_mapping(self, value: Mapping[Any, object], path: str, depth: int) -> dict[str, object]:
        self._check_depth(path, depth)
        copy: dict[str, object] = {}
        for name, item in value.items():
            if not isinstance(name, str):
                self._drop(
                    path,
                    f"has the name {quoted(name)}; names must be strings: put it in quotes",
                    f'"{name}": …',
                )
                continue
            fault = _find_unprintable(name)
            if not name.strip():
                fault = "nothing in it"
            if fault is not None:
                self._drop(path, f"has a name with {fault}", "letters, digits and _")
                continue
            copy[name] = self._copy_value(item, f"{path}.{name}" if path else name, depth)
        return copy

    def _copy_value(self, value: object, path: str, depth: int) -> object:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise invalid(f"has more than {NODES_MAX} values", "a job has a few dozen values")
        match value:
            case dict():
                return self.copy_mapping(value, path, depth + 1)
            case list() | tuple():
                self._check_depth(path, depth + 1)
                return [
                    self._copy_value(item, f"{path}[{index}]", depth + 1)
                    for index, item in enumerate(value)
                ]
            case None | bool():
                return value
            case int() | float():
                return self._copy_number(value, path)
            case str():
                return self._copy_string(value, path)
            case _:
                return self._drop(
                    path,
                    f"is a {type(value).__name__}, which is not a JSON type",
                    '"text in quotes"',
                )

    def _copy_number(self, value: float, path: str) -> object:
        if isinstance(value, int):
            if value not in _INT64:
                return self._drop(path, "is a number of more than 64 bits", "1000000")
        elif not math.isfinite(value):
            return self._drop(path, "is not a finite number", "0.5")
        return value

    def _copy_string(self, value: str, path: str) -> object:
        unprintable = _find_unprintable(value)
        if unprintable is not None:
            return self._drop(path, f"contains {unprintable}", "plain text")
        return value

    def _check_depth(self, path: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            problem = f"is nested more than {DEPTH_MAX} levels deep, in {path[:_PATH_CHARS_MAX]}"
            raise invalid(problem, "trainingInput: {args: []}")

    def _drop(self, path: str, problem: str, example: str) -> object:
        """Add the problem, and return null as the value.

        List items keep their index so, and a name that is given is not missing.
        """
        self.problems.append(Problem(path or ROOT, problem, example=example))
        return None


def _find_unprintable(text: str) -> str | None:
    """Name what neither an argument list nor Firestore can store; None if there is nothing."""
    if "\0" in text:
        return "a NUL character"
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return "half a surrogate pair"
    return None
