"""What may be tried of each parameter, in neither API's words: the rules that both have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.core.model.tuning import TRIALS_MAX, Parameter, ParameterKind, Scale, shown
from shared.jobspec.reading.problems import Findings, Loc, given

BYTES_MAX: Final = 400_000
"""Of all trials, as they are stored: with as many of an earlier study they fit one Firestore document of 1 MiB."""
TRIAL_BYTES: Final = 200
"""Of one, without its values: what its fields are called takes most of it."""
NUMBER_BYTES: Final = 25
VALUES_MAX: Final = 1000
"""Source: the API's schema, `discreteValues`."""
INTEGER_MAX: Final = 2**53
"""Beyond that, a double (the API's type for the limits) skips integers."""
DOUBLE_MAX: Final = 1e300
"""Room is left for the sum of two, and for how far they are apart."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_SCALES: Final = {"UNIT_LOG_SCALE": Scale.LOG, "UNIT_REVERSE_LOG_SCALE": Scale.REVERSE_LOG}


@dataclass(frozen=True, slots=True)
class Places:
    """Where in the document a parameter's values stand, or would."""

    name: Loc
    low: Loc
    high: Loc
    values: Loc
    scale: Loc


@dataclass(frozen=True, slots=True)
class Asked:
    """`kind` in the words of ParameterKind; None: it is unknown, and has been complained of."""

    name: str | None
    kind: ParameterKind | None
    at: Places
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    scale: str | None = None

    @property
    def is_log(self) -> bool:
        return self.scale in _SCALES


def parameters_of(asked: Sequence[Asked], found: Findings) -> tuple[Parameter, ...]:
    """Right where nothing was found, and stand-ins otherwise."""
    first: dict[str, int] = {}
    for index, each in enumerate(asked):
        _check_name(each, first, index, found)
        match each.kind:
            case ParameterKind.CATEGORICAL:
                _check_categories(each, found)
            case ParameterKind.DISCRETE:
                _check_discrete(each, found)
            case ParameterKind.DOUBLE | ParameterKind.INTEGER:
                _check_range(each, found)
    return tuple(_parameter(each, each.kind) for each in asked if each.kind is not None)


def check_count(count: int | None, at: Loc, found: Findings) -> int:
    if count is not None and not 0 <= count <= TRIALS_MAX:
        found.add(at, f"must be from 1 to {TRIALS_MAX}, not {count}", 10)
    return count or 0


def check_size(parameters: Sequence[Parameter], trials: int, at: Loc, found: Findings) -> None:
    """What is stored of a tuning job is one document."""
    longest = [max((len(text.encode()) for text in each.choices), default=NUMBER_BYTES) for each in parameters]
    most = BYTES_MAX // (TRIAL_BYTES + sum(longest))
    if trials > most:
        problem = f"is more than {most}, which is all that can be stored of trials with so many and so long values"
        found.add(at, problem, most)


def _check_name(asked: Asked, first: dict[str, int], index: int, found: Findings) -> None:
    name, at = asked.name, asked.at.name
    if name is None:
        found.add(at, "is required", "learning-rate")
    elif not _NAME.fullmatch(name):
        rule = "becomes the flag --NAME: letters, digits, _, - and ., a letter or _ first, at most 128"
        found.add(at, f"{rule}, unlike {given(name)}", re.sub(r"[^A-Za-z0-9_.-]+", "_", name.lstrip("-"))[:128] or "x")
    elif name in first:
        found.add(at, f"is that of {at[-3]}[{first[name]}], too", f"{name}_2")
    first.setdefault(name or "", index)


def _check_categories(asked: Asked, found: Findings) -> None:
    values, at = asked.categories, asked.at.values
    if not values and not found.doubtful(at):
        found.add(at, "is required", ["adam", "sgd"])
    elif len(values) > VALUES_MAX:
        found.add_text(at, f"has {len(values)} values, more than {VALUES_MAX}", "fewer of them")
    for index, value in enumerate(values):
        if value in values[:index]:
            found.add_text((*at, index), f"names {given(value)} again", "each value once")


def _check_discrete(asked: Asked, found: Findings) -> None:
    values, at = asked.numbers, asked.at.values
    if not values:
        if not found.doubtful(at):
            found.add(at, "is required", [16, 32, 64])
    elif len(values) > VALUES_MAX:
        found.add_text(at, f"has {len(values)} values, more than {VALUES_MAX}", "fewer of them")
    elif list(values) != sorted(set(values)):
        found.add(at, "must be strictly increasing", [_as_written(value) for value in sorted(set(values))][:20])
    elif asked.is_log and values[0] <= 0:
        found.add(asked.at.scale, "takes values above 0, and the first is not", "UNIT_LINEAR_SCALE")


def _check_range(asked: Asked, found: Findings) -> None:
    low, high, at = asked.low, asked.high, asked.at
    for place, value, example in ((at.low, low, 1), (at.high, high, 100)):
        if value is None:
            found.add(place, f"is required for {asked.kind}", example)
        elif asked.kind is ParameterKind.INTEGER and (value != int(value) or abs(value) > INTEGER_MAX):
            found.add(place, f"must be a whole number for INTEGER, not {given(value)}", round(value))
        elif abs(value) > DOUBLE_MAX:
            found.add(place, f"must be from -{DOUBLE_MAX} to {DOUBLE_MAX}, not {given(value)}", example)
    if low is None or high is None or found.doubtful(at.low, at.high):
        return
    if low > high:
        found.add(at.high, f"is below minValue, which is {shown(low)}", _as_written(low))
    elif asked.is_log and low <= 0:
        found.add(at.scale, f"takes values above 0, and minValue is {shown(low)}", "UNIT_LINEAR_SCALE")


def _as_written(value: float) -> float:
    """As a person would write it."""
    return int(value) if value == int(value) else value


def _parameter(asked: Asked, kind: ParameterKind) -> Parameter:
    return Parameter(
        name=asked.name or "",
        kind=kind,
        low=asked.low or 0.0,
        high=asked.high or 0.0,
        choices=asked.categories or tuple(shown(value) for value in asked.numbers),
        scale=_SCALES.get(asked.scale or "", Scale.LINEAR),
    )
