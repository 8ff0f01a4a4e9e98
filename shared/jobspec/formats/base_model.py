"""How the wire models are written, and what can be asked of them: their names, and what stands behind each."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shared.jobspec.reading.problems import snake_case


class Wire(BaseModel):
    """Every name is optional on the wire; canonical names are camelCase.

    `shorthand`: the field that a single value in place of the mapping stands for. `renamed`: further spellings → the
    canonical name.
    """

    # Built when first read: a job is written in one of two dialects.
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, defer_build=True)
    shorthand: ClassVar[str | None] = None
    renamed: ClassVar[Mapping[str, str]] = {}


@cache
def fields_of(model: type[Wire]) -> dict[str, type[Wire] | None]:
    """Canonical name → the model behind it or behind each of its items; None where it is a leaf."""
    return {str(info.alias): _model_in(info.annotation) for info in model.model_fields.values()}


@cache
def spellings_of(model: type[Wire]) -> dict[str, str]:
    """Every accepted spelling → the canonical name."""
    return {**{spelled: name for name in fields_of(model) for spelled in (name, snake_case(name))}, **model.renamed}


def example_in(model: type[Wire], name: str) -> object:
    """The example of one field."""
    info = next(info for info in model.model_fields.values() if info.alias == name)
    return (info.examples or [None])[0]


def _model_in(annotation: object) -> type[Wire] | None:
    """The model itself, or that of `X | None`, `tuple[X, ...]` and both."""
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        return annotation
    if typing.get_origin(annotation) is None:
        return None
    return next((model for inner in typing.get_args(annotation) if (model := _model_in(inner))), None)
