"""Read a plain document into its model: first the names, then the types.

Fields with a problem are left out. `accept` calls `with_lists` and then `read_model`.

The body of a document is the object below `trainingInput`, `jobSpec` or the like. Some kinds of
documents may have its fields at the top level instead: a bare body. `Problems.names` records how
the sender spelled each name: empty for a level that was left out.

Names may be in camelCase or snake_case: proto3 JSON reads both; TFX and tensorflow_cloud send the
latter. Unknown names are refused: a typo in an optional field must not cost a night of training
with the default.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainmaster.jobspec.formats.ai_platform import AiPlatformJob
from trainmaster.jobspec.formats.base_model import (
    WireModel,
    accepted_names,
    nested_models,
    repeated_fields,
)
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.unsupported import UNSUPPORTED_DOCUMENTS
from trainmaster.jobspec.formats.vertex import VertexCustomJob
from trainmaster.jobspec.problems import FieldPath, Problem, Problems, quoted, yaml_line
from trainmaster.jobspec.reading.document_kinds import (
    AI_PLATFORM,
    DocumentKind,
    detect_kind,
    example_at,
    kinds_of,
)
from trainmaster.jobspec.reading.field_names import EXTENSION, MANIFEST_NAMES, TRAINING_INPUT
from trainmaster.jobspec.reading.foreign_names import meaning_of

_SIMILAR: Final = 0.7
"""Similarity, from 0 to 1, from which an unknown name is taken for a misspelled one."""
TRAINING_INPUT_EXAMPLE: Final = f"{TRAINING_INPUT}: {json.dumps(example_at((TRAINING_INPUT,)))}"

_TYPE_NAMES: Final = {
    "tuple_type": "a list",
    "model_type": "a mapping",
    "mapping_type": "a mapping",
}


def read_model(
    document: Mapping[str, object], problems: Problems
) -> AiPlatformJob | VertexCustomJob:
    """Return the job without the fields that have a problem, and add the problems to `problems`."""
    kind = detect_kind(document)
    reader = _NameReader(kind, problems)
    bare = kind.bare_body(document)
    rest = {name: value for name, value in document.items() if name not in bare}
    if bare:
        problems.names[(kind.body,)] = ""
        if not kind.allows_bare_body:
            problems.add_of_document(_misplaced(bare, kind))
    if kind.sent_body != kind.body:
        problems.names[(kind.body,)] = kind.sent_body  # how to show it where it is missing
    canonical = reader.canonicalize(rest, kind.model, path=())
    if bare:
        canonical[kind.body] = reader.canonicalize(bare, kind.body_model, (kind.body,))
    job = _validate(canonical, kind.model, problems)
    if not isinstance(job, AiPlatformJob | VertexCustomJob):
        raise TypeError(f"{kind.model} is not the model of a document")
    return job


def with_lists(document: dict[str, object]) -> dict[str, object]:
    """Return the document with a list of one in place of a single value of a field that is a list.

    Source: gcloud reads its `--config` files so (apitools, `protojson.py`); the documentation's
    examples use it.
    """
    kind = detect_kind(document)
    result = _with_lists(document, kind.model)
    return _with_lists(result, kind.body_model) if kind.allows_bare_body else result


def _with_lists(written: dict[str, object], model: type[WireModel]) -> dict[str, object]:
    names = accepted_names(model)
    models = nested_models(model)
    lists = repeated_fields(model)
    result: dict[str, object] = {}
    for name, value in written.items():
        canonical = names.get(name, "")
        is_single = canonical in lists and value is not None and not isinstance(value, list)
        has_objects = lists.get(canonical)
        # A value of another type than the items is refused later.
        is_item = isinstance(value, dict) is has_objects
        listed = [value] if is_single and is_item else value
        inner = models.get(canonical)
        match listed:
            case dict() if inner:
                result[name] = _with_lists(listed, inner)
            case list() if inner:
                result[name] = [
                    _with_lists(item, inner) if isinstance(item, dict) else item for item in listed
                ]
            case _:
                result[name] = listed
    return result


def _misplaced(bare: Mapping[str, object], kind: DocumentKind) -> Problem:
    """Return the problem of a document with the fields of the body at its top level."""
    names = ", ".join(bare)
    verb = "belong" if len(bare) > 1 else "belongs"
    problem = f"is missing: {names} {verb} under it, not next to it"
    if kind.sent_body == TRAINING_INPUT:
        return Problem(kind.sent_body, problem, example=TRAINING_INPUT_EXAMPLE)
    return Problem(kind.sent_body, problem, example=f"{kind.sent_body}: {{{names}: …}}")


class _NameReader:
    """Replaces the sender's names by canonical ones, records the spelling, refuses unknown ones."""

    def __init__(self, kind: DocumentKind, problems: Problems) -> None:
        self._kind = kind
        self._problems = problems

    def canonicalize(
        self, written: Mapping[str, object], model: type[WireModel], path: FieldPath
    ) -> dict[str, object]:
        """Return the mapping with canonical names, also in nested models, without null fields."""
        models = nested_models(model)
        names = accepted_names(model)
        result: dict[str, object] = {}
        spellings: dict[str, str] = {}
        unknown: list[str] = []
        for name, value in written.items():
            canonical = names.get(name)
            if canonical is None:
                unknown.append(name)
                continue
            field_path = (*path, canonical)
            if canonical in spellings:
                problem = f"is given twice, as {spellings[canonical]} and as {name}"
                self._problems.add_text(field_path, problem, advice=f"only {spellings[canonical]}")
                continue
            spellings[canonical] = name
            self._problems.names[field_path] = name
            if value is not None:
                result[canonical] = self._canonical_value(value, models[canonical], field_path)
        # In a document of a kind that is not supported, the other unknown names say nothing new.
        of_another_kind = [name for name in unknown if not path and name in UNSUPPORTED_DOCUMENTS]
        for name in of_another_kind or unknown:
            self._refuse_unknown(name, model, path)
        return result

    def _canonical_value(
        self, value: object, model: type[WireModel] | None, path: FieldPath
    ) -> object:
        """Return the value with canonical names.

        `model`: that of the field, or of the items of a list; None: the field has no names in it. A
        model with a shorthand may be written as the value of that one field.
        """
        match value:
            case _ if model is None or value is None:
                return value
            case dict():
                return self.canonicalize(value, model, path)
            case list() if model.shorthand is None:
                return [
                    self._canonical_value(item, model, (*path, index))
                    for index, item in enumerate(value)
                ]
            case _ if model.shorthand is not None:
                self._problems.names[(*path, model.shorthand)] = ""
                return {model.shorthand: value}
            case _:
                return value

    def _refuse_unknown(self, name: str, model: type[WireModel], path: FieldPath) -> None:
        self._problems.names[(*path, name)] = name
        is_root = model is self._kind.model
        if is_root and self._refuse_known_elsewhere(name):
            return
        # First: the extension's `image` is no container, which most users mean by that name.
        meaning = meaning_of(name, is_vertex=self._kind is not AI_PLATFORM)
        if meaning is not None:
            self._problems.add_text((*path, name), "is not a known name", advice=meaning)
            return
        in_extension = accepted_names(Extension).get(name)
        is_inside_itself = path[:2] == (EXTENSION, in_extension)
        if in_extension is not None and not is_inside_itself:
            self._add_misplaced(name, (*path, name), EXTENSION, EXTENSION, in_extension)
            return
        at_top = accepted_names(self._kind.model).get(name)
        if path == (self._kind.body,) and at_top is not None:
            example = yaml_line({name: example_at((at_top,))})
            problem = f"is not known here: it belongs next to {path[0]}, not into it"
            self._problems.add_text((*path, name), problem, advice=example)
            return
        known = nested_models(model)
        if is_root and self._kind.allows_bare_body:
            known = {**known, **nested_models(self._kind.body_model)}
        self._add_misspelled(name, model, known, path)

    def _refuse_known_elsewhere(self, name: str) -> bool:
        """Refuse a name at the top level that is known in another place or document.

        Return whether it is.
        """
        problems = self._problems
        kind = self._kind
        path = (name,)
        in_body = accepted_names(kind.body_model).get(name)
        is_output = name in kind.output_only
        other_kinds = kinds_of(name)
        if name in UNSUPPORTED_DOCUMENTS:
            feature, example = UNSUPPORTED_DOCUMENTS[name]
            problem = f"requests {feature}; this is not supported: submit a training job"
            problems.add_text(path, problem, advice=example)
            problems.mark_misspelled((kind.body,))
        elif other_kinds and in_body is None and not is_output:
            titles = " or ".join(other.title for other in other_kinds)
            problem = (
                f"belongs to a {titles}, but this document is a {kind.title}: a document"
                " describes one job"
            )
            identifying = [problems.names.get((field,)) for field in kind.identified_by]
            contradicting = [name, *(spelled for spelled in identifying if spelled)]
            problems.add_text(path, problem, advice=f"leave out {' or '.join(contradicting)}")
        elif name in MANIFEST_NAMES:
            problem = (
                "marks a manifest of Kubeflow or JobSet; here only a job file can be sent, with"
                " jobId and trainingInput"
            )
            advice = "trainmaster convert MANIFEST prints the job file of a manifest"
            problems.add_text(path, problem, advice=advice)
        elif is_output:
            problem = "is set by the service and cannot be submitted"
            problems.add_text(path, problem, advice="leave it out")
        elif in_body is not None:
            body = problems.spelled_name((kind.body,))
            self._add_misplaced(name, path, kind.body, body, in_body)
        else:
            return False
        return True

    def _add_misplaced(
        self, name: str, path: FieldPath, holder: str, spelled_holder: str, canonical: str
    ) -> None:
        """Add the problem of a name that belongs into the object `holder`, as `canonical`."""
        place = (holder, canonical)
        problem = f"is not known here: it belongs under {spelled_holder}"
        example = f"{spelled_holder}: {{{yaml_line({name: example_at(place)})}}}"
        self._problems.add_text(path, problem, advice=example)
        # Afterwards: it hides problems at the place and below.
        self._problems.mark_misspelled(place)

    def _add_misspelled(
        self, name: str, model: type[WireModel], known: Mapping[str, object], path: FieldPath
    ) -> None:
        problems = self._problems
        nearest = _nearest_name(name, known)
        if nearest is None:
            example = f"one of {', '.join(known)}"
            problems.add_text((*path, name), "is not a known name", advice=example)
            return
        is_in_model = nearest in nested_models(model)
        meant = (*path, nearest) if is_in_model else (self._kind.body, nearest)
        suggestion = problems.spelled_name(meant)
        problem = f"is not a known name; did you mean {suggestion}?"
        problems.add_text((*path, name), problem, advice=yaml_line({suggestion: example_at(meant)}))
        problems.mark_misspelled(meant)


def _nearest_name(name: str, known: Mapping[str, object]) -> str | None:
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    nearest = difflib.get_close_matches(
        name.replace("_", "").lower(), by_lower_case, n=1, cutoff=_SIMILAR
    )
    return by_lower_case[nearest[0]] if nearest else None


def _validate(
    canonical: dict[str, object], model: type[WireModel], problems: Problems
) -> WireModel:
    """Return the model of the fields without errors, and report all errors."""
    try:
        return model.model_validate(canonical)
    except ValidationError as error:
        details = error.errors(include_url=False)
    for detail in details:
        problem, example = _describe(detail)
        problems.add(detail["loc"], problem, example=example)
    for detail in details:
        _leave_out(canonical, detail["loc"])
    return model.model_validate(canonical)


def _describe(detail: ErrorDetails) -> tuple[str, object]:
    """Return the problem of a pydantic error, and an example of a correct value."""
    value = detail["input"]
    limits = detail.get("ctx", {})
    example = limits.get("example")
    if example is None:
        example = example_at(detail["loc"])
    match detail["type"]:
        case kind if kind in _TYPE_NAMES:
            return f"must be {_TYPE_NAMES[kind]}, not {quoted(value)}", example
        case "greater_than_equal":
            return f"must be at least {limits['ge']}, not {value}", limits["ge"]
        case "less_than_equal":
            return f"must be at most {limits['le']}, not {value}", limits["le"]
        case "too_long":
            return f"has more than {limits['max_length']} items", example
        case "string_too_long":
            return f"has more than {limits['max_length']} characters", example
        case _:
            return detail["msg"], example


def _leave_out(canonical: dict[str, object], path: FieldPath) -> None:
    """Remove the innermost named field on the path: a list with a wrong item goes as a whole."""
    holder: object = canonical
    innermost: tuple[dict[str, object], str] | None = None  # the object with the field, its name
    for step in path:
        if isinstance(holder, dict):
            innermost = (holder, str(step))
            holder = holder.get(str(step))
        elif isinstance(holder, list) and isinstance(step, int) and step < len(holder):
            holder = holder[step]
        else:
            break
    if innermost is not None:
        fields, name = innermost
        fields.pop(name, None)
