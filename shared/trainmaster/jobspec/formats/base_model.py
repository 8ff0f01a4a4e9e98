"""The base class of the document models, and lookups in a model: names, nested models, examples."""

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
    """Canonical name of the field that is set by a plain value in place of the object.

    `spot: workers` sets `use`.
    """
    other_names: ClassVar[Mapping[str, str]] = {}
    """Further accepted names → the canonical name."""


def wire_field(
    description: str,
    *,
    example: object,
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
    """Map each canonical name to the model of its value or of its list items; None: no model."""
    return {str(info.alias): _find_model(info.annotation) for info in model.model_fields.values()}


@cache
def repeated_fields(model: type[WireModel]) -> dict[str, bool]:
    """Map the canonical name of each list to whether its items are objects."""
    lists: dict[str, bool] = {}
    for info in model.model_fields.values():
        if typing.get_origin(info.annotation) is tuple:
            item_type = typing.get_args(info.annotation)[0]
            has_objects = bool(_find_model(item_type)) or typing.get_origin(item_type) is Mapping
            lists[str(info.alias)] = has_objects
    return lists


@cache
def accepted_names(model: type[WireModel]) -> dict[str, str]:
    """Map every accepted spelling (camelCase, snake_case, other names) to the canonical name."""
    accepted: dict[str, str] = {}
    for name in nested_models(model):
        accepted[name] = name
        accepted[snake_case(name)] = name
    return {**accepted, **model.other_names}


def field_example(model: type[WireModel], name: str) -> object:
    """Return the example of the field with this canonical name; None: it has none."""
    info = next(info for info in model.model_fields.values() if info.alias == name)
    return (info.examples or [None])[0]


def _find_model(annotation: object) -> type[WireModel] | None:
    """Return the model in `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return annotation
    if typing.get_origin(annotation) is None:
        return None
    for inner in typing.get_args(annotation):
        model = _find_model(inner)
        if model is not None:
            return model
    return None
