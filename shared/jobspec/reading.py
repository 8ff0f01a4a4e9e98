"""From a plain document to the typed job: names first, then types. What is wrong is noted and left out.

Names are the service's in camelCase or snake_case (proto3 JSON reads both; TFX and tensorflow_cloud send the latter).
Unknown names are refused: a typo in an optional field must not cost a night of training with the default.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from shared.jobspec.model import Job, TrainingInput, Wire, example_of, fields_of
from shared.jobspec.problems import Findings, Loc, Problem, Spelling, given, lines, snake_case
from shared.jobspec.unsupported import NOT_YET_DOCUMENTS

TRAINING_INPUT: Final = "trainingInput"

TRAINING_INPUT_EXAMPLE: Final = f"{TRAINING_INPUT}: {json.dumps(example_of((TRAINING_INPUT,)))}"

_OUTPUT_NAMES: Final = (
    "createTime",
    "startTime",
    "endTime",
    "state",
    "errorMessage",
    "etag",
    "jobPosition",
    "trainingOutput",
    "predictionOutput",
)
"""Names of a Job that are answers. Source: the API's schema marks them as output only."""
_TYPE_NAMES: Final = {"tuple_type": "a list", "model_type": "a mapping", "mapping_type": "a mapping"}


def read(document: Mapping[str, object], spelling: Spelling, found: Findings) -> tuple[Job, tuple[Problem, ...]]:
    """The job as far as it can be read, and a problem of the whole that must not hide those of its parts."""
    names = _Names(spelling, found)
    bare = _bare_names(document)
    if not bare:
        return _typed(names.canonical(document, Job, ()), found), ()
    spelling.names[(TRAINING_INPUT,)] = ""
    canonical = names.canonical({name: value for name, value in document.items() if name not in bare}, Job, ())
    canonical[TRAINING_INPUT] = names.canonical(bare, TrainingInput, (TRAINING_INPUT,))
    problem = f"is missing: {', '.join(bare)} belong{'' if len(bare) > 1 else 's'} under it, not beside it"
    return _typed(canonical, found), (Problem(TRAINING_INPUT, problem, TRAINING_INPUT_EXAMPLE),)


def _bare_names(document: Mapping[str, object]) -> dict[str, object]:
    """The fields of a TrainingInput that stands where a Job should."""
    if TRAINING_INPUT in document or snake_case(TRAINING_INPUT) in document:
        return {}
    known = _spellings(TrainingInput)
    return {name: value for name, value in document.items() if name in known}


class _Names:
    def __init__(self, spelling: Spelling, found: Findings) -> None:
        self._spelling = spelling
        self._found = found

    def canonical(self, written: Mapping[str, object], model: type[Wire], loc: Loc) -> dict[str, object]:
        """The same mapping under canonical names, its models' mappings too."""
        fields, known = fields_of(model), _spellings(model)
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
            child = fields[known[name]]
            result[known[name]] = (
                self.canonical(value, child, at) if child is not None and isinstance(value, dict) else value
            )
        for name in unknown:
            self._unknown(name, model, loc)
        return result

    def _twice(self, at: Loc, name: str) -> None:
        first = self._spelling.name(at)
        self._found.add_text(at, f"is given twice, as {first} and as {name}", f"only {first}")

    def _unknown(self, name: str, model: type[Wire], loc: Loc) -> None:
        at = (*loc, name)
        self._spelling.names[at] = name
        known = fields_of(model)
        elsewhere = _spellings(TrainingInput).get(name) if model is Job else None
        if model is Job and name in NOT_YET_DOCUMENTS:
            what, example = NOT_YET_DOCUMENTS[name]
            self._found.add_text(at, f"asks for {what}, which is not supported yet: submit a trainingInput", example)
            self._found.suspect((TRAINING_INPUT,))
        elif model is Job and name in _OUTPUT_NAMES:
            self._found.add_text(at, "is set by the service and cannot be submitted", "leave it out")
        elif elsewhere is not None:
            self._found.suspect((TRAINING_INPUT, elsewhere))
            example = f"{TRAINING_INPUT}: {{{lines({name: example_of((TRAINING_INPUT, elsewhere))})}}}"
            self._found.add_text(at, f"is not known here: it belongs under {TRAINING_INPUT}", example)
        elif near := _nearest(name, known):
            self._found.suspect((*loc, near))
            meant = self._found.name((*loc, near))
            example = lines({meant: example_of((*loc, near))})
            self._found.add_text(at, f"is not a known name; did you mean {meant}?", example)
        else:
            self._found.add_text(at, "is not a known name", f"one of {', '.join(known)}")


def _spellings(model: type[Wire]) -> dict[str, str]:
    """Every accepted spelling → the canonical name."""
    return {spelled: name for name in fields_of(model) for spelled in (name, snake_case(name))}


def _nearest(name: str, known: Mapping[str, object]) -> str | None:
    plain = {known_name.lower(): known_name for known_name in known}
    near = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.7)
    return plain[near[0]] if near else None


def _typed(canonical: dict[str, object], found: Findings) -> Job:
    """Validates, notes what is wrong and leaves it out until the rest is right; each round removes something."""
    while True:
        try:
            return Job.model_validate(canonical)
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
        wanted = _TYPE_NAMES[detail["type"]]
        found.add(loc, f"must be {wanted}, not {given(detail['input'])}", example)
    else:
        found.add(loc, detail["msg"], example)


def _leave_out(canonical: dict[str, object], loc: Loc) -> None:
    """Removes the field that holds the place; a list with a bad item goes as a whole."""
    holder: dict[str, object] = canonical
    for step in loc:
        inner = holder.get(str(step))
        if not isinstance(inner, dict) or step == loc[-1]:
            holder.pop(str(step), None)
            return
        holder = inner
