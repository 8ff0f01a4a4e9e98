"""From a plain document to the typed job: names first, then types. What is wrong is noted and left out.

Names are the services' in camelCase or snake_case (proto3 JSON reads both; TFX and tensorflow_cloud send the latter).
Unknown names are refused: a typo in an optional field must not cost a night of training with the default.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from shared.jobspec.fields.unsupported import NOT_YET_DOCUMENTS
from shared.jobspec.formats.ai_platform import Job
from shared.jobspec.formats.base_model import Wire, fields_of, spellings_of
from shared.jobspec.formats.vertex import CustomJob
from shared.jobspec.reading.document_kinds import BODIES, TRAINING_INPUT, Kind, example_of, kind_of
from shared.jobspec.reading.problems import Findings, Loc, Problem, Spelling, given, lines, snake_case

TRAINING_INPUT_EXAMPLE: Final = f"{TRAINING_INPUT}: {json.dumps(example_of((TRAINING_INPUT,)))}"

_TYPE_NAMES: Final = {"tuple_type": "a list", "model_type": "a mapping", "mapping_type": "a mapping"}


def read(
    document: Mapping[str, object], spelling: Spelling, found: Findings
) -> tuple[Job | CustomJob, tuple[Problem, ...]]:
    """The job as far as it can be read, and a problem of the whole that must not hide those of its parts."""
    kind = kind_of(document)
    names = _Names(kind, spelling, found)
    bare = _bare_names(document, kind)
    rest = {name: value for name, value in document.items() if name not in bare}
    if bare:
        spelling.names[(kind.body,)] = ""
    for spelled in list(kind.root.renamed)[:1]:
        spelling.names[(kind.root.renamed[spelled],)] = spelled  # also where it is missing
    canonical = names.canonical(rest, kind.root, ())
    if bare:
        canonical[kind.body] = names.canonical(bare, kind.body_model, (kind.body,))
    typed = _typed(canonical, kind.root, found)
    if not isinstance(typed, Job | CustomJob):
        raise TypeError(f"{kind.root} is no document")
    return typed, () if kind.may_be_bare or not bare else (_misplaced(bare),)


def _bare_names(document: Mapping[str, object], kind: Kind) -> dict[str, object]:
    """The fields of a body that stands where the whole should."""
    if kind.body in document or snake_case(kind.body) in document:
        return {}
    known = spellings_of(kind.body_model).keys() - spellings_of(kind.root).keys()
    return {name: value for name, value in document.items() if name in known}


def _misplaced(bare: Mapping[str, object]) -> Problem:
    problem = f"is missing: {', '.join(bare)} belong{'' if len(bare) > 1 else 's'} under it, not beside it"
    return Problem(TRAINING_INPUT, problem, TRAINING_INPUT_EXAMPLE)


class _Names:
    def __init__(self, kind: Kind, spelling: Spelling, found: Findings) -> None:
        self._kind = kind
        self._spelling = spelling
        self._found = found

    def canonical(self, written: Mapping[str, object], model: type[Wire], loc: Loc) -> dict[str, object]:
        """The same mapping under canonical names, its models' mappings too."""
        fields, known = fields_of(model), spellings_of(model)
        result: dict[str, object] = {}
        unknown: list[str] = []
        for name, value in written.items():
            if name not in known:
                unknown.append(name)
                continue
            at = (*loc, known[name])
            if known[name] in result:
                self._twice(at, name)
                continue
            self._spelling.names[at] = name
            result[known[name]] = self._value(value, fields[known[name]], at)
        of_another_kind = [name for name in unknown if not loc and name in NOT_YET_DOCUMENTS]
        for name in of_another_kind or unknown:
            self._unknown(name, model, loc)
        return result

    def _value(self, value: object, model: type[Wire] | None, at: Loc) -> object:
        match value:
            case _ if model is None or value is None:
                return value
            case dict():
                return self.canonical(value, model, at)
            case list() if model.shorthand is None:
                return [self._value(item, model, (*at, index)) for index, item in enumerate(value)]
            case _ if model.shorthand is not None:
                self._spelling.names[(*at, model.shorthand)] = ""
                return {model.shorthand: value}
            case _:
                return value

    def _twice(self, at: Loc, name: str) -> None:
        first = self._spelling.name(at)
        self._found.add_text(at, f"is given twice, as {first} and as {name}", f"only {first}")

    def _unknown(self, name: str, model: type[Wire], loc: Loc) -> None:
        at = (*loc, name)
        self._spelling.names[at] = name
        known = fields_of(model)
        is_root, body = model is self._kind.root, self._kind.body
        elsewhere = spellings_of(self._kind.body_model).get(name) if is_root else None
        if is_root and name in NOT_YET_DOCUMENTS:
            what, example = NOT_YET_DOCUMENTS[name]
            self._found.add_text(at, f"asks for {what}, which is not supported: submit a training job", example)
            self._found.suspect((body,))
        elif is_root and name in BODIES:
            problem = f"does not go with {self._spelling.path((body,))}: a document has one of them"
            self._found.add_text(at, problem, "leave one of them out")
        elif is_root and name in self._kind.answers:
            self._found.add_text(at, "is set by the service and cannot be submitted", "leave it out")
        elif elsewhere is not None:
            self._found.suspect((body, elsewhere))
            example = f"{body}: {{{lines({name: example_of((body, elsewhere))})}}}"
            self._found.add_text(at, f"is not known here: it belongs under {body}", example)
        elif near := _nearest(name, known):
            self._found.suspect((*loc, near))
            meant = self._found.name((*loc, near))
            example = lines({meant: example_of((*loc, near))})
            self._found.add_text(at, f"is not a known name; did you mean {meant}?", example)
        else:
            self._found.add_text(at, "is not a known name", f"one of {', '.join(known)}")


def _nearest(name: str, known: Mapping[str, object]) -> str | None:
    plain = {known_name.lower(): known_name for known_name in known}
    near = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.7)
    return plain[near[0]] if near else None


def _typed(canonical: dict[str, object], root: type[Wire], found: Findings) -> Wire:
    """Validates, notes what is wrong and leaves it out until the rest is right; each round removes something."""
    while True:
        try:
            return root.model_validate(canonical)
        except ValidationError as error:
            # Bad items of a list first, so that the list itself is still there to be pointed into.
            for detail in error.errors(include_url=False, include_input=True):
                _note(detail["loc"], detail, found)
            for detail in error.errors(include_url=False, include_input=False):
                _leave_out(canonical, detail["loc"])


def _note(loc: Loc, detail: Any, found: Findings) -> None:
    context = detail.get("ctx", {})
    example = context.get("example")
    if example is None:
        example = example_of(loc)
    if detail["type"] in _TYPE_NAMES:
        desired = _TYPE_NAMES[detail["type"]]
        found.add(loc, f"must be {desired}, not {given(detail['input'])}", example)
    else:
        found.add(loc, detail["msg"], example)


def _leave_out(canonical: dict[str, object], loc: Loc) -> None:
    """Removes the innermost named field that holds the place; a list with a bad item goes as a whole."""
    holder: object = canonical
    field: tuple[dict[str, object], str] | None = None
    for step in loc:
        if isinstance(holder, dict):
            field = (holder, str(step))
            holder = holder.get(str(step))
        elif isinstance(holder, list) and isinstance(step, int) and step < len(holder):
            holder = holder[step]
        else:
            break
    if field is not None:
        field[0].pop(field[1], None)
