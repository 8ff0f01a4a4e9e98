"""Nothing but JSON: what a document may consist of before anyone looks at what it says.

Bounds what the rest has to cope with (depth, size, numbers, characters), so that no document, however made, can end in
anything but a plan or a list of problems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from shared.jobspec.reading.problems import ROOT, InvalidJob, Problem, given

DEPTH_MAX: Final = 32
NODES_MAX: Final = 50_000
_INT64: Final = range(-(2**63), 2**63)


def plain(document: Mapping[str, object]) -> tuple[dict[str, object], tuple[Problem, ...]]:
    """A deep copy that is plain JSON, null where it could not be, and why. InvalidJob: there was no end to it."""
    copier = _Copier()
    copy = copier.mapping(document, "", depth=1)
    return copy, tuple(copier.problems)


class _Copier:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._nodes = 0

    def mapping(self, value: Mapping[Any, object], path: str, depth: int) -> dict[str, object]:
        self._descend(path, depth)
        copy: dict[str, object] = {}
        for name, item in value.items():
            if not isinstance(name, str):
                self._drop(path, f"has the name {given(name)}, and names are strings: put it in quotes", f'"{name}": …')
                continue
            if wrong := _unprintable(name):
                self._drop(path, f"has a name with {wrong}", "letters, digits and _")
                continue
            copy[name] = self._value(item, f"{path}.{name}" if path else name, depth)
        return copy

    def _value(self, value: object, path: str, depth: int) -> object:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise InvalidJob([Problem(ROOT, f"has more than {NODES_MAX} values", "a job has a few dozen")])
        match value:
            case dict():
                return self.mapping(value, path, depth + 1)
            case list() | tuple():
                self._descend(path, depth + 1)
                return [self._value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
            case None | bool():
                return value
            case int() | float():
                return self._number(value, path)
            case str():
                wrong = _unprintable(value)
                return self._drop(path, f"contains {wrong}", "plain text") if wrong else value
            case _:
                return self._drop(path, f"is a {type(value).__name__}, which no job field can be", '"text in quotes"')

    def _number(self, value: float, path: str) -> object:
        if isinstance(value, int):
            return value if value in _INT64 else self._drop(path, "is a number of more than 64 bits", "1000000")
        return value if math.isfinite(value) else self._drop(path, "is not a finite number", "0.5")

    def _descend(self, path: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise InvalidJob(
                [Problem(ROOT, f"is nested more than {DEPTH_MAX} deep, in {path[:200]}", "trainingInput: {args: []}")]
            )

    def _drop(self, path: str, problem: str, example: str) -> object:
        """Notes the problem; what stands in is null, so that list items keep their index and names stay given."""
        self.problems.append(Problem(path or ROOT, problem, example))
        return None


def _unprintable(text: str) -> str | None:
    """What neither an argument list nor Firestore can hold."""
    if "\0" in text:
        return "a NUL character"
    return None if text.isascii() or all(not "\ud800" <= char <= "\udfff" for char in text) else "half a surrogate pair"
