"""The filter of `timeSeries.list`, as far as it is used here: comparisons that are all joined by
AND.

    metric.type = "custom.googleapis.com/x" AND resource.labels.job = "j" AND metric.labels.gpu =
    one_of("0", "1")

Values are texts, `starts_with("…")` or `one_of("…", …)`. Other parts of the language (OR, NOT,
other functions, groups, projects) are refused with an error that names them. Source: Cloud
Monitoring's page "Monitoring filters".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trainmaster_emulators.monitoring.series import SeriesKey
from trainmaster_emulators.rest.api_errors import ApiError, invalid

_TEXT: Final = r'"((?:[^"\\]|\\.)*)"'
_COMPARISON: Final = re.compile(
    r"\s*([a-z_.]+[A-Za-z0-9_]*)\s*(!?=)"
    rf"\s*(?:{_TEXT}|(starts_with|one_of)\s*\(([^)]*)\))\s*(AND\s|$)"
)
"""Field, operator, then a text or a function and its arguments."""
_FIELD: Final = re.compile(r"(metric|resource)\.(type|labels?\.[a-zA-Z][a-zA-Z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter: a metric, and conditions that all must hold."""

    metric: str
    conditions: tuple[Callable[[SeriesKey], bool], ...]

    def accepts(self, key: SeriesKey) -> bool:
        return all(condition(key) for condition in self.conditions)


def parse(text: str) -> Filter:
    """Parse a filter. Raises ApiError (400)."""
    metric = ""
    conditions: list[Callable[[SeriesKey], bool]] = []
    position = 0
    while position < len(text):
        match = _COMPARISON.match(text, position)
        if match is None:
            raise _syntax_error(text[position:])
        field, operator, value, function, arguments, _ = match.groups()
        if not _FIELD.fullmatch(field):
            raise invalid(f"Field filter had an invalid value: unknown field {field!r}.")
        if field == "metric.type":
            if metric or operator != "=" or value is None:
                raise _metric_error(text)
            metric = _unescape(value)
        conditions.append(_condition(field, operator, value, function, arguments))
        position = match.end()
    if not metric:
        raise _metric_error(text)
    return Filter(metric, tuple(conditions))


def _condition(
    field: str, operator: str, value: str | None, function: str, arguments: str
) -> Callable[[SeriesKey], bool]:
    texts = [value] if value is not None else re.findall(_TEXT, arguments)
    values = [_unescape(text) for text in texts]
    if not values or (function == "starts_with" and len(values) != 1):
        raise _syntax_error(f"{function}({arguments})")

    def matches(key: SeriesKey) -> bool:
        actual = key.field(field) or ""
        is_match = actual.startswith(values[0]) if function == "starts_with" else actual in values
        return is_match == (operator == "=")

    return matches


def _metric_error(text: str) -> ApiError:
    return invalid(
        f'Field filter had an invalid value of "{text}": must specify a single metric type by'
        ' metric.type = "…".'
    )


def _syntax_error(text: str) -> ApiError:
    return invalid(
        "Field filter had an invalid value: this emulator cannot parse it at"
        f" {text.strip()[:40]!r}."
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
