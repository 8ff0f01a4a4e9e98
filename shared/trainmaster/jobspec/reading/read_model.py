"""Read a plain document into its model: first the names, then the types.

Fields with a problem are left out.

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
    EXTENSION,
    MANIFEST_NAMES,
    TRAINING_INPUT,
    DocumentKind,
    detect_kind,
    example_at,
    kinds_of,
)

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
    names = _NameReader(kind, problems)
    bare = kind.bare_body(document)
    rest = {name: value for name, value in document.items() if name not in bare}
    if bare:
        problems.names[(kind.body,)] = ""
        if not kind.allows_bare_body:
            problems.add_of_document(_misplaced(bare, kind))
    for spelling, name in list(kind.model.other_names.items())[:1]:
        problems.names[(name,)] = spelling  # how to show it where it is missing
    canonical = names.canonicalize(rest, kind.model, ())
    if bare:
        canonical[kind.body] = names.canonicalize(bare, kind.body_model, (kind.body,))
    job = _validate(canonical, kind.model, problems)
    if not isinstance(job, AiPlatformJob | VertexCustomJob):
        raise TypeError(f"{kind.model} is not the model of a document")
    return job


def with_lists(document: dict[str, object]) -> dict[str, object]:
    """Return the document with a list of one where it has a single value for a field that is a
    list.

    Source: gcloud reads its `--config` files so (apitools, `protojson.py`); the documentation's
    examples use it.
    """
    kind = detect_kind(document)
    result = _with_lists(document, kind.model)
    return _with_lists(result, kind.body_model) if kind.allows_bare_body else result


def _with_lists(written: dict[str, object], model: type[WireModel]) -> dict[str, object]:
    names, models, lists = accepted_names(model), nested_models(model), repeated_fields(model)
    result: dict[str, object] = {}
    for name, value in written.items():
        canonical = names.get(name, "")
        is_single = canonical in lists and value is not None and not isinstance(value, list)
        items = [value] if is_single and isinstance(value, dict) is lists[canonical] else value
        inner = models.get(canonical)
        match items:
            case dict() if inner:
                result[name] = _with_lists(items, inner)
            case list() if inner:
                result[name] = [
                    _with_lists(item, inner) if isinstance(item, dict) else item for item in items
                ]
            case _:
                result[name] = items
    return result


def _misplaced(bare: Mapping[str, object], kind: DocumentKind) -> Problem:
    problem = (
        f"is missing: {', '.join(bare)} belong{'' if len(bare) > 1 else 's'} under it, not next"
        " to it"
    )
    example = (
        TRAINING_INPUT_EXAMPLE
        if kind.sent_body == TRAINING_INPUT
        else f"{kind.sent_body}: {{{', '.join(bare)}: …}}"
    )
    return Problem(kind.sent_body, problem, example)


class _NameReader:
    """Replaces the sender's names by canonical ones, records the spelling, and refuses unknown
    names.
    """

    def __init__(self, kind: DocumentKind, problems: Problems) -> None:
        self._kind = kind
        self._problems = problems

    def canonicalize(
        self, written: Mapping[str, object], model: type[WireModel], path: FieldPath
    ) -> dict[str, object]:
        """Return the mapping with canonical names, in nested models too, without fields that are
        null.
        """
        models, names = nested_models(model), accepted_names(model)
        result: dict[str, object] = {}
        spellings: dict[str, str] = {}
        unknown: list[str] = []
        for name, value in written.items():
            canonical = names.get(name)
            if canonical is None:
                unknown.append(name)
            elif canonical in spellings:
                problem = f"is given twice, as {spellings[canonical]} and as {name}"
                self._problems.add_text((*path, canonical), problem, f"only {spellings[canonical]}")
            else:
                spellings[canonical] = self._problems.names[(*path, canonical)] = name
                if value is not None:
                    result[canonical] = self._canonical_value(
                        value, models[canonical], (*path, canonical)
                    )
        of_another_kind = [name for name in unknown if not path and name in UNSUPPORTED_DOCUMENTS]
        for name in of_another_kind or unknown:
            self._refuse_unknown(name, model, path)
        return result

    def _canonical_value(
        self, value: object, model: type[WireModel] | None, path: FieldPath
    ) -> object:
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
        problems, body = self._problems, self._kind.body
        name_path = (*path, name)
        self._problems.names[name_path] = name
        known = nested_models(model)
        is_root = model is self._kind.model
        if is_root and self._kind.allows_bare_body:
            known = {**known, **nested_models(self._kind.body_model)}
        in_body = accepted_names(self._kind.body_model).get(name) if is_root else None
        if is_root and name in UNSUPPORTED_DOCUMENTS:
            feature, example = UNSUPPORTED_DOCUMENTS[name]
            problems.add_text(
                name_path,
                f"requests {feature}; this is not supported: submit a training job",
                example,
            )
            problems.mark_misspelled((body,))
        elif (
            is_root
            and in_body is None
            and name not in self._kind.output_only
            and (others := kinds_of(name))
        ):
            titles = " or ".join(kind.title for kind in others)
            own = [
                spelled
                for field in self._kind.identified_by
                if (spelled := self._problems.names.get((field,)))
            ]
            problem = (
                f"belongs to a {titles}, but this document is a {self._kind.title}: a document"
                " describes one job"
            )
            problems.add_text(name_path, problem, f"leave out {' or '.join([name, *own])}")
        elif is_root and name in MANIFEST_NAMES:
            problem = (
                "marks a manifest of Kubeflow or JobSet; here only a job file can be sent, with"
                " jobId and trainingInput"
            )
            problems.add_text(
                name_path, problem, "trainmaster convert MANIFEST prints the job file of a manifest"
            )
        elif is_root and name in self._kind.output_only:
            problems.add_text(
                name_path, "is set by the service and cannot be submitted", "leave it out"
            )
        elif in_body is not None:
            problems.mark_misspelled((body, in_body))
            spelled = problems.spelled_name((body,))
            example = f"{spelled}: {{{yaml_line({name: example_at((body, in_body))})}}}"
            problems.add_text(name_path, f"is not known here: it belongs under {spelled}", example)
        elif in_extension := accepted_names(Extension).get(name):
            problems.mark_misspelled((EXTENSION, in_extension))
            example = f"{EXTENSION}: {{{yaml_line({name: example_at((EXTENSION, in_extension))})}}}"
            problems.add_text(
                name_path, f"is not known here: it belongs under {EXTENSION}", example
            )
        elif nearest := _nearest_name(name, known):
            meant = (*path, nearest) if nearest in nested_models(model) else (body, nearest)
            problems.mark_misspelled(meant)
            suggestion = problems.spelled_name(meant)
            example = yaml_line({suggestion: example_at(meant)})
            problems.add_text(
                name_path, f"is not a known name; did you mean {suggestion}?", example
            )
        else:
            problems.add_text(name_path, "is not a known name", f"one of {', '.join(known)}")


def _nearest_name(name: str, known: Mapping[str, object]) -> str | None:
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    nearest = difflib.get_close_matches(
        name.replace("_", "").lower(), by_lower_case, n=1, cutoff=0.7
    )
    return by_lower_case[nearest[0]] if nearest else None


def _validate(
    canonical: dict[str, object], model: type[WireModel], problems: Problems
) -> WireModel:
    """Validate; on errors report all of them, leave the fields out and validate the rest, which is
    then correct.
    """
    try:
        return model.model_validate(canonical)
    except ValidationError as error:
        details = error.errors(include_url=False)
    for detail in details:
        problem, example = _describe(detail)
        problems.add(detail["loc"], problem, example)
    for detail in details:
        _leave_out(canonical, detail["loc"])
    return model.model_validate(canonical)


def _describe(detail: ErrorDetails) -> tuple[str, object]:
    """Return the problem of a pydantic error, and an example of a correct value."""
    value, limits = detail["input"], detail.get("ctx", {})
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
    """Remove the innermost named field on the path; a list with a wrong item is removed
    as a whole.
    """
    holder: object = canonical
    field: tuple[dict[str, object], str] | None = None
    for step in path:
        if isinstance(holder, dict):
            field = (holder, str(step))
            holder = holder.get(str(step))
        elif isinstance(holder, list) and isinstance(step, int) and step < len(holder):
            holder = holder[step]
        else:
            break
    if field is not None:
        field[0].pop(field[1], None)
