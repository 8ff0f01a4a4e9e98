"""The scalar types of job documents, as lenient as the services' proto3 JSON and no more.

Absent, null, "" and the proto default (0, …_UNSPECIFIED) mean the same: None. Source: bodies of
real clients (tensorflow_cloud, TFX, gcloud) that AI Platform Training, the service, accepted.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Final, Never, Self

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from trainmaster.jobspec.catalog.machine_types import ACCELERATOR_TYPES
from trainmaster.jobspec.problems import quoted

_DAY_S: Final = 86_400
TIME_S_MAX: Final = 100 * _DAY_S
"""Longest running or waiting time.

Compute Engine deletes a VM after 120 days at the latest (`maxRunDuration`); the other 20 days are
for provisioning and waiting.
"""

_NUMBER_CHARS_MAX: Final = 40
"""Characters of a number that an example repeats."""
_CURRENCY: Final = "USD"
"""The currency in examples."""
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,19}(\.0+)?")
_DURATION: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
"""Whole seconds, and their decimals."""
_UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": _DAY_S}
"""First letter of a unit → its seconds."""
_OTHER_DURATION: Final = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,9})?) *(|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
)
"""A duration as other tools write it: `90m`, `1.5 hours`."""
_UNSPECIFIED: Final = "_UNSPECIFIED"
"""End of the name of an enum's default, which means that nothing is set."""


class WrittenFloat(float):
    """A number that was read from a file, with its text: as a version, 2.10 is not 2.1."""

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str
    """As it stands in the file."""


def reject(problem: str, example: object = None) -> Never:
    """End a validator with a problem.

    `example`: a correct value made from the wrong one; None: the field's own.
    """
    raise PydanticCustomError("job", "{problem}", {"problem": problem, "example": example})


def duration(
    least_s: int, example_s: int, words: Iterable[StrEnum] = (), most_s: int = TIME_S_MAX
) -> BeforeValidator:
    """Return a validator of durations from `least_s` to `most_s`.

    It rounds up to whole seconds: `1.5s` is 2. `example_s`: duration to suggest. `words`: what may
    stand there instead, in any case.
    """
    by_name = {word.value: word for word in words}
    pattern = f"^{_DURATION.pattern}$"
    if by_name:
        pattern = f"^({'|'.join((*by_name, _DURATION.pattern))})$"

    def parse(value: object) -> int | StrEnum | None:
        word = _unquoted(value, by_name)
        if isinstance(word, str) and word.lower() in by_name:
            return by_name[word.lower()]
        alternatives = "".join(f" or {name}" for name in by_name)
        duration_s = _parse_duration(value, range(least_s, most_s + 1), alternatives)
        if duration_s is not None and not least_s <= duration_s <= most_s:
            reject(f"must be from {least_s}s to {most_s}s, not {value}", f"{example_s}s")
        return duration_s

    return BeforeValidator(parse, json_schema_input_type=Annotated[str, Field(pattern=pattern)])


_GPU_PREFIX: Final = re.compile(r"^NVIDIA_(?:TESLA_)?")
"""Older GPUs have TESLA in their names, newer ones have not."""
_SIMILARITY: Final = 0.8
"""Of two names without that prefix, of which one is taken for a misspelling of the other."""


def one_of(choices: Iterable[StrEnum]) -> BeforeValidator:
    """Return a validator that finds the member by its name, in any case, with - or _.

    Source: tensorflow_cloud sends `"scaleTier": "custom"`.
    """
    members = {choice.name: choice for choice in choices}

    def parse(value: object) -> StrEnum | None:
        name = _match_name(value, members)
        return None if name is None else members[name]

    return BeforeValidator(parse)


def one_name_of(names: Iterable[str]) -> BeforeValidator:
    """Return a validator that finds one of the names, which are the keys of a table, in any case,
    with - or _.
    """
    known = dict.fromkeys(names)
    return BeforeValidator(lambda value: _match_name(value, known))


def _unquoted(value: object, known: Iterable[str]) -> object:
    """Return `on` or `off` for a boolean if that is one of the names, else the value as it is.

    YAML 1.1 reads these words without quotes as booleans.
    """
    if not isinstance(value, bool):
        return value
    word = "on" if value else "off"
    return next((name for name in known if name.lower() == word), value)


def _match_name(value: object, known: Iterable[str]) -> str | None:
    value = _unquoted(value, known)
    if value is None or value == "":
        return None
    name = value.upper().replace("-", "_") if isinstance(value, str) else ""
    if name in known:
        return name
    if name.endswith(_UNSPECIFIED):
        return None
    nearest = _nearest_name(name, known)
    if nearest:
        return reject(f"has no value {quoted(value)}; did you mean {nearest}?", nearest)
    return reject(f"must be one of {', '.join(known)}, not {quoted(value)}")


def _nearest_name(name: str, known: Iterable[str]) -> str | None:
    meant = _GPU_PREFIX.sub("", name)
    by_meaning = {_GPU_PREFIX.sub("", known_name): known_name for known_name in known}
    nearest = difflib.get_close_matches(meant, by_meaning, n=1, cutoff=_SIMILARITY)
    return by_meaning[nearest[0]] if nearest else None


def _parse_string(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        text = "true" if value else "false"
        reject(f"must be a string; {text} without quotes is a boolean", text)
    if isinstance(value, int):
        reject(f"must be a string; {value} without quotes is a number", str(value))
    if isinstance(value, float):
        text = _text_of_number(value)
        reject(
            f"must be a string; {text} without quotes is a number, which loses trailing zeros", text
        )
    return reject(f"must be a string, not {_describe_type(value)}")


def _text_of_number(number: float) -> str:
    """Return what was written, else most likely written: the shortest text, without exponent."""
    if isinstance(number, WrittenFloat) and len(number.text) <= _NUMBER_CHARS_MAX:
        return number.text
    return format(Decimal(repr(float(number))), "f")


def _parse_money(value: object) -> object:
    """Parse a text whose content is checked later; a number gets an example with a currency."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount = _text_of_number(value) if isinstance(value, float) else str(value)
        problem = f"must be an amount and a currency; {amount} is a number without a currency"
        reject(problem, f"{amount} {_CURRENCY}")
    return _parse_string(value)


def _parse_optional_string(value: object) -> object:
    return None if value is None or value == "" else _parse_string(value)


def _parse_whole_number(value: object) -> object:
    """Parse an int64, which is a string or a number.

    Source: gcloud and tensorflow_cloud send "2", YAML files 2.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return reject(f"must be a whole number, not {_describe_type(value)}")
    if not _INTEGER.fullmatch(str(value)):
        return reject(f"must be a whole number, not {quoted(value)}")
    return int(str(value).partition(".")[0]) or None


def _parse_double(value: object) -> object:
    """Parse a double, which may also be a string. Source: proto3 JSON."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    return reject(f"must be a number, not {quoted(value)}")


def _parse_optional_double(value: object) -> object:
    """Keep 0, unlike whole numbers: a parameter's range may begin with it."""
    return None if value is None or value == "" else _parse_double(value)


def _parse_boolean(value: object) -> object:
    """Parse a boolean, or its name.

    Source: `"useChiefInTfConfig": "True"` occurs in bodies that the service accepted.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    match str(value).lower():
        case "true":
            return True
        case "false" | "":
            return False
        case _:
            return reject(f"must be true or false, not {quoted(value)}")


def _parse_duration(value: object, legal_s: range, alternatives: str = "") -> int | None:
    """Parse seconds with up to nine decimals, followed by `s`. Source: the API's schema.

    `legal_s`: the seconds that the field may have, for the example. `alternatives`: what it may
    have instead, for the message, such as ` or off`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        reject(
            f"must be a duration, a string of seconds that ends in s, not {quoted(value)}",
            f"{_nearest_in(legal_s, value)}s",
        )
    text = _parse_optional_string(value)
    if text is None:
        return None
    match = _DURATION.fullmatch(str(text))
    if match is None:
        return reject(
            f"must be a duration in seconds that ends in s{alternatives}, not {quoted(text)}",
            _duration_meant(str(text), legal_s),
        )
    whole_seconds, decimals = match.groups(default="0")
    seconds = int(whole_seconds)
    has_fraction = int(decimals) > 0
    return seconds + 1 if has_fraction else seconds


def _nearest_in(legal_s: range, seconds: int) -> int:
    return min(max(seconds, legal_s[0]), legal_s[-1])


def _duration_meant(text: str, legal_s: range) -> str | None:
    """Return the duration that `90m`, `1.5 hours` or `60` means, as the API writes it, or the
    nearest one that the field may have; None: the text is no duration.
    """
    match = _OTHER_DURATION.fullmatch(text.strip().lower())
    if match is None:
        return None
    number, unit = match.groups()
    seconds = math.ceil(float(number) * _UNITS_S[unit[:1]])
    return f"{_nearest_in(legal_s, seconds)}s"


def _describe_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return quoted(value)


WHOLE_NUMBER: Final = BeforeValidator(_parse_whole_number)
"""For integers with limits: `Annotated[Annotated[int, Field(ge=0)] | None, WHOLE_NUMBER]`."""
TEXT: Final = BeforeValidator(_parse_optional_string)
"""For strings with limits: `Annotated[Annotated[str, Field(max_length=128)] | None, TEXT]`."""

String = Annotated[str, BeforeValidator(_parse_string)]
OptionalString = Annotated[str | None, TEXT]
GivenString = Annotated[
    str | None, BeforeValidator(lambda value: value if value is None else _parse_string(value))
]
"""For a string without which the job would cost more: "" is an error, perhaps of an unset variable.
"""
Money = Annotated[
    str | None, BeforeValidator(lambda value: value if value is None else _parse_money(value))
]
OptionalInt = Annotated[int | None, WHOLE_NUMBER]
Double = Annotated[float, BeforeValidator(_parse_double)]
OptionalDouble = Annotated[float | None, BeforeValidator(_parse_optional_double)]
Boolean = Annotated[bool, BeforeValidator(_parse_boolean)]
OptionalBoolean = Annotated[
    bool | None, BeforeValidator(lambda value: value if value is None else _parse_boolean(value))
]
RunningTime = Annotated[int | None, duration(1, example_s=7 * _DAY_S)]
AcceleratorType = Annotated[
    str | None, one_name_of(ACCELERATOR_TYPES), WithJsonSchema({"enum": list(ACCELERATOR_TYPES)})
]
