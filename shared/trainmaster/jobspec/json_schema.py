"""The JSON Schema of job files, with which editors complete and check them.

It is generated from the document models. It knows camelCase names and canonical enum values only.
Trainmaster itself is more lenient (snake_case, enums in any case, booleans as strings), and it
checks which fields may be combined, which the schema does not.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from trainmaster.jobspec.formats.ai_platform import AiPlatformJob
from trainmaster.jobspec.formats.base_model import WireModel
from trainmaster.jobspec.formats.placement import SpotSpec
from trainmaster.jobspec.formats.vertex import CustomJobSpec, VertexCustomJob, VertexJob
from trainmaster.jobspec.formats.vertex_study import VertexTuningJob

Json = dict[str, Any]


class BareVertexJob(VertexJob, CustomJobSpec):
    """A CustomJob without `jobSpec`: its fields stand at the top level."""


_REQUIRED: Final[dict[type[WireModel], tuple[str, ...]]] = {
    AiPlatformJob: ("trainingInput",),
    VertexCustomJob: ("jobSpec",),
    VertexTuningJob: ("studySpec", "trialJobSpec"),
    BareVertexJob: ("workerPoolSpecs",),
}
"""Model of a document → the fields that identify it."""


def job_schema() -> Json:
    """Return the schema of a job file in either format."""
    documents = AiPlatformJob | VertexCustomJob | VertexTuningJob | BareVertexJob
    schema = TypeAdapter[Any](documents).json_schema(schema_generator=_Generator)
    definitions: Json = schema["$defs"]
    tuning_fields: Json = definitions[VertexTuningJob.__name__]["properties"]
    tuning_fields["trialJobSpec"] = tuning_fields.pop("jobSpec")
    for model, names in _REQUIRED.items():
        definitions[model.__name__]["required"] = list(names)
    definitions[SpotSpec.__name__] = _with_shorthand(SpotSpec, definitions[SpotSpec.__name__])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trainmaster job",
        "description": (
            "A job in the format of AI Platform Training or of Vertex AI. docs/job-format.md"
            " describes it."
        ),
        "anyOf": schema["anyOf"],
        "$defs": _simplify(definitions),
    }


class _Generator(GenerateJsonSchema):
    """Generates schemas without titles, which would only repeat the names."""

    # The signature is pydantic's.
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _with_shorthand(model: type[WireModel], schema: Json) -> Json:
    """Also accept a plain value in place of the object."""
    return {"anyOf": [schema["properties"][str(model.shorthand)], schema]}


def _simplify(schema: Any) -> Any:
    """Accept numbers as strings, as proto3 JSON has them.

    Remove null and empty defaults, which editors would offer.
    """
    if isinstance(schema, list):
        return [_simplify(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        name: _simplify(value)
        for name, value in schema.items()
        if not (name == "default" and (value is None or value in ([], {})))
    }
    if result.get("type") in ("integer", "number"):
        result["type"] = [result["type"], "string"]
    if not isinstance(result.get("anyOf"), list):  # or the property that has this name
        return result
    choices = [choice for choice in result.pop("anyOf") if choice != {"type": "null"}]
    if len(choices) == 1:
        return {**choices[0], **result}
    return {**result, "anyOf": choices} if choices else result
