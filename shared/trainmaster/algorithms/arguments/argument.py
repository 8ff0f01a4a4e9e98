"""One argument of an algorithm, and what is wrong with a value.

Each algorithm has a table of arguments (`tables.py`). The control plane checks a job with it when
the job is submitted, and the program reads its own command line with it (`parse.py`). The *service*
is AI Platform Training, whose built-in algorithms these replace.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Value = bool | int | float | str | tuple[int, ...] | None
Values = Mapping[str, Value]

STORAGE: Final = "gs://"
_SIMILAR: Final = 0.4
"""Similarity, from 0 to 1, from which a misspelled argument is taken for another one."""
_TRUE: Final = ("true", "1", "yes")
_FALSE: Final = ("false", "0", "no")
BOOLEANS: Final = (*_TRUE, *_FALSE)


class Kind(StrEnum):
    """Type of an argument's values."""

    FLAG = "flag"  # --name, --name=true, --name=false
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    PATH = "path"  # gs://BUCKET/OBJECT
    INTEGERS = "integers"  # 30,30,30


class Source(StrEnum):
    """Origin of a default."""

    SERVICE = "AI Platform Training"
    VERTEX = "its successor on Vertex AI"
    OURS = "Trainmaster; that of AI Platform Training is unknown"


@dataclass(frozen=True, slots=True)
class Argument:
    """A row of a table of arguments."""

    name: str
    kind: Kind
    help: str
    default: Value = None
    """Value without the argument; None: the algorithm or its library decides, as `help` says."""
    source: Source = Source.OURS
    """Origin of the default."""
    low: float | None = None
    """Smallest value of a number, included unless `is_open`."""
    high: float | None = None
    """Largest value of a number, included."""
    is_open: bool = False
    """Whether `low` itself is not allowed."""
    choices: tuple[str, ...] = ()
    """Allowed texts; empty: any."""
    is_required: bool = False
    replaced: tuple[tuple[str, str, str], ...] = ()
    """Texts that today's libraries no longer have: (requested, replacement, reason)."""
    ignored: str = ""
    """Why the argument no longer has an effect; empty: it has one."""

    @property
    def allowed(self) -> str:
        """Allowed values, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        match self.kind:
            case Kind.FLAG:
                return "true or false"
            case Kind.INTEGER | Kind.NUMBER:
                noun = "a whole number" if self.kind is Kind.INTEGER else "a number"
                return " ".join(filter(None, (noun, self._range)))
            case Kind.INTEGERS:
                return "whole numbers greater than 0, separated by commas"
            case Kind.PATH:
                return "a path in Cloud Storage (gs://BUCKET/OBJECT)"
            case Kind.TEXT:
                return "a text"

    @property
    def _range(self) -> str:
        """The limits of a number, in words: the end of a phrase that begins with "a number"."""
        parts = []
        if self.low is not None:
            parts.append(
                f"greater than {self.low:g}" if self.is_open else f"of at least {self.low:g}"
            )
        if self.high is not None:
            parts.append(f"of at most {self.high:g}" if not parts else f"at most {self.high:g}")
        return " and ".join(parts)

    def read(self, text: str) -> Value:
        """Return the value that a text stands for.

        Raises ValueError without a message if it is not allowed.
        """
        match self.kind:
            case Kind.FLAG:
                return _read_boolean(text)
            case Kind.INTEGER | Kind.NUMBER:
                return self._read_number(text)
            case Kind.INTEGERS:
                numbers = tuple(int(part) for part in text.replace(",", " ").split())
                if not numbers or min(numbers) < 1:
                    raise ValueError
                return numbers
            case Kind.TEXT | Kind.PATH:
                if not text or (self.choices and text not in self.choices):
                    raise ValueError
                return text

    def _read_number(self, text: str) -> int | float:
        """Return the number that a text stands for. Raises ValueError if it is outside of the
        limits.
        """
        number = float(text)
        if not math.isfinite(number):
            raise ValueError
        if self.kind is Kind.INTEGER and number != int(number):
            raise ValueError
        is_excluded_end = self.is_open and number == self.low
        is_too_low = self.low is not None and (number < self.low or is_excluded_end)
        is_too_high = self.high is not None and number > self.high
        if is_too_low or is_too_high:
            raise ValueError
        return int(number) if self.kind is Kind.INTEGER else number


def argument_maker(kind: Kind, source: Source) -> Callable[..., Argument]:
    """Return a function that makes arguments of this kind from a name, a default, a help text and
    further fields.
    """
    return lambda name, default, help_text, **others: Argument(
        name, kind, help_text, default, source, **others
    )


def number_in(values: Values, name: str) -> float:
    """Return the value of an argument that is a number; 0 if it has none."""
    value = values[name]
    return value if isinstance(value, int | float) else 0.0


def integer_in(values: Values, name: str) -> int:
    """Return the value of an argument that is a whole number; 0 if it has none."""
    return int(number_in(values, name))


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """Why a command line is refused."""

    name: str
    """Name of the argument; empty if there is none."""
    text: str
    """The problem: the rest of a sentence that begins with the argument's name."""
    example: str
    """Arguments that are accepted."""

    def __str__(self) -> str:
        subject = f"--{self.name} " if self.name else ""
        return f"{subject}{self.text}; for example: {self.example}"


@dataclass(frozen=True, slots=True)
class ArgumentNote:
    """An argument that has another effect than it had."""

    name: str
    requested: str
    replacement: str
    """The value that has an effect in place of `requested`, or "no effect"."""
    reason: str


Finding = ArgumentProblem | ArgumentNote
Rule = Callable[[Values, frozenset[str]], Iterator[Finding]]
"""Checks values together. The second parameter has the names of the arguments that were given."""


@dataclass(frozen=True, slots=True)
class ArgumentTable:
    """All arguments of one algorithm."""

    arguments: tuple[Argument, ...]
    rules: tuple[Rule, ...] = ()
    """Checks of values together."""

    def find(self, name: str) -> Argument | None:
        """Return the argument of this name; None if there is none."""
        return next((argument for argument in self.arguments if argument.name == name), None)

    def nearest(self, name: str) -> str:
        """Return the name of the argument that is most like this one."""
        names = [argument.name for argument in self.arguments]
        return (difflib.get_close_matches(name, names, n=1, cutoff=_SIMILAR) or names)[0]


def _read_boolean(text: str) -> bool:
    """Return whether a text means yes. Raises ValueError if it means neither yes nor no."""
    if text.lower() not in BOOLEANS:
        raise ValueError
    return text.lower() in _TRUE
