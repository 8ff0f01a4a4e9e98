"""The scalars of the wire format, as lenient as the service's proto3 JSON was and no more.

Absent, null, "" and the proto default (0, …_UNSPECIFIED) are one and the same: None. Source: bodies of real clients
that worked (tensorflow_cloud, TFX, gcloud).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Final, Never

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from shared.jobspec.reading.problems import given

_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,19}(\.0+)?")
_DURATION: Final = re.compile(r"(?P<whole>[0-9]{1,12})(\.(?P<fraction>[0-9]{1,9}))?s")
_UNSPECIFIED: Final = "_UNSPECIFIED"


def refuse(problem: str, example: object = None) -> Never:
    """Ends a validator. `example` is a right value made from the wrong one; None: the field's own example."""
    raise PydanticCustomError("job", "{problem}", {"problem": problem, "example": example})


def seconds(value: str) -> int:
    """Whole seconds of a checked Duration, rounded up: `1.5s` → 2."""
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(f"not a duration: {value!r}")
    return int(match["whole"]) + (1 if int(match["fraction"] or 0) else 0)


def _item(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        text = "true" if value else "false"
        refuse(f"must be a string, and {text} without quotes is a boolean", text)
    if isinstance(value, int):
        refuse(f"must be a string, and {value} without quotes is a number", str(value))
    if isinstance(value, float):
        # Shortest text that reads back the same, never in exponent form: what the sender most likely typed.
        text = format(Decimal(repr(value)), "f")
        refuse(f"must be a string, and {text} without quotes is a number (which drops trailing zeros)", text)
    return refuse(f"must be a string, not {_kind(value)}")


def _text(value: object) -> object:
    return None if value is None or value == "" else _item(value)


def _count(value: object) -> object:
    """int64 travels as a string or as a number. Source: gcloud and tensorflow_cloud send "2", YAML configs 2."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return refuse(f"must be a whole number, not {_kind(value)}")
    if not _INTEGER.fullmatch(str(value)):
        return refuse(f"must be a whole number, not {given(value)}")
    return int(str(value).partition(".")[0]) or None


def _figure(value: object) -> object:
    """A double travels as a number or as a string, too. Source: proto3 JSON."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    return refuse(f"must be a number, not {given(value)}")


def _number(value: object) -> object:
    """0 is said here, unlike in counts: a range may well begin with it."""
    return None if value is None or value == "" else _figure(value)


def _flag(value: object) -> object:
    """Source: `"useChiefInTfConfig": "True"` is seen in job bodies that worked."""
    if value is None or isinstance(value, bool):
        return bool(value)
    match str(value).lower():
        case "true":
            return True
        case "false" | "":
            return False
        case _:
            return refuse(f"must be true or false, not {given(value)}")


def _duration(value: object) -> object:
    """Source: API schema: seconds with up to nine fractional digits, ended by `s`."""
    if isinstance(value, int) and not isinstance(value, bool):
        refuse(f"must be a duration: a string of seconds that ends in s, not {given(value)}", f"{value}s")
    text = _text(value)
    if isinstance(text, str) and not _DURATION.fullmatch(text):
        refuse(f"must be a duration in seconds that ends in s, not {given(text)}")
    return text


def word(value: object, known: Sequence[str]) -> str | None:
    """One of an enum's names, in any case, with - or _. Source: tensorflow_cloud sends `"scaleTier": "custom"`."""
    if value is None or value == "":
        return None
    name = str(value).upper().replace("-", "_") if isinstance(value, str) else ""
    if name in known:
        return name
    if name.endswith(_UNSPECIFIED):
        return None
    return refuse(f"must be one of {', '.join(known)}, not {given(value)}")


def _kind(value: object) -> str:
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
            return given(value)


Text = Annotated[str | None, BeforeValidator(_text)]
Item = Annotated[str, BeforeValidator(_item)]
Count = Annotated[int | None, BeforeValidator(_count)]
Figure = Annotated[float, BeforeValidator(_figure)]
Number = Annotated[float | None, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Duration = Annotated[str | None, BeforeValidator(_duration)]
