"""The base class of the document models, and lookups in a model: accepted names, nested models,
examples.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from trainmaster.jobspec.problems import snake_case


class WireModel(BaseModel):
    """A JSON object in a submitted document.

    Every field is optional; canonical names are camelCase.
    """

    # defer_build: a document is in one of two formats, so half of the models are never built.
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, defer_build=True
    )

    shorthand: ClassVar[str | None] = None
    """Canonical name of the field that a plain value in place of the object sets: `spot: workers`
    sets `use`.
    """
    other_names: ClassVar[Mapping[str, str]] = {}
    """Further accepted names → the canonical name."""


def wire_field(
    example: object,
    description: str,
    *,
    default: object = None,
    factory: Callable[[], object] | None = None,
) -> Any:
    """Declare a field.

    Error messages show the example; the JSON Schema has both example and description.
    """
    if factory is not None:
        return Field(default_factory=factory, examples=[example], description=description)
    return Field(default, examples=[example], description=description)


@cache
def nested_models(model: type[WireModel]) -> dict[str, type[WireModel] | None]:
    """Map each canonical name to the model of its value or of its list items; None for a field
    without a model.
    """
    return {str(info.alias): _find_model(info.annotation) for info in model.model_fields.values()}


@cache
def repeated_fields(model: type[WireModel]) -> dict[str, bool]:
    """Map the canonical name of each list to whether its items are objects."""
    lists = {
        str(info.alias): typing.get_args(info.annotation)[0]
        for info in model.model_fields.values()
        if typing.get_origin(info.annotation) is tuple
    }
    return {
        name: bool(_find_model(item)) or typing.get_origin(item) is Mapping
        for name, item in lists.items()
    }


@cache
def accepted_names(model: type[WireModel]) -> dict[str, str]:
    """Map every accepted spelling (camelCase, snake_case, other names) to the canonical name."""
    spellings = {
        spelling: name for name in nested_models(model) for spelling in (name, snake_case(name))
    }
    return {**spellings, **model.other_names}


def field_example(model: type[WireModel], name: str) -> object:
    info = next(info for info in model.model_fields.values() if info.alias == name)
    return (info.examples or [None])[0]


def _find_model(annotation: object) -> type[WireModel] | None:
    """Return the model in `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return annotation
    if typing.get_origin(annotation) is None:
        return None
    return next(
        (model for inner in typing.get_args(annotation) if (model := _find_model(inner))), None
    )
