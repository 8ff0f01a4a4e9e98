"""Findings of the conversion of a manifest: problems, substitutions, and the origin of each field.

`Findings.read` reads one level of a manifest. Each level's model lists three groups of fields:
those that it reads, those that have no effect here (`dropped`, listed as substitutions), and those
that cannot be honoured (`refused`). Any other field is unknown and refused, because a typo must not
cost a night of training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trainmaster.jobspec.problems import InvalidJob, Problem, quoted

_LEAVE_OUT: Final = "leave it out"
_REQUESTED_CHARS_MAX: Final = 120
"""Characters of a requested value that a substitution repeats."""
Count = Annotated[int, Field(ge=0)]


class Level(BaseModel):
    """One mapping of a manifest.

    Every field has a default, so that a level can be read without its wrong fields.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, defer_build=True
    )

    dropped: ClassVar[Mapping[str, str]] = {}
    """Field without effect here → why it is not needed."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Field that is not supported → what to do instead; follows "FIELD is not supported: "."""
    moved: ClassVar[Mapping[str, str]] = {}
    """Field of an earlier release → the field of this level that holds it today.

    Both releases have the same apiVersion.
    """


AnyLevel = TypeVar("AnyLevel", bound=Level)


def _is_empty(value: object) -> bool:
    return value in ({}, [], "", False)


def _is_at_or_below(path: str, place: str) -> bool:
    """Return whether the path is that of the place, or of something in it."""
    return f"{path}.".startswith((f"{place}.", f"{place}["))


@dataclass
class Findings:
    """Collects what the conversion of one manifest finds."""

    problems: list[Problem] = field(default_factory=list)
    substitutions: list[dict[str, str]] = field(default_factory=list)
    """Each as an item of `trainmaster.convertedFrom.substitutions`."""
    origins: dict[str, str] = field(default_factory=dict)
    """Path in the job file → path in the manifest that it was made from."""
    moved: dict[str, str] = field(default_factory=dict)
    """Path of a field in today's release → its path in the manifest, which is of an earlier one."""

    def read(self, value: object, path: str, level: type[AnyLevel]) -> AnyLevel:
        """Return the level at `path`, without the fields that have a problem."""
        if not isinstance(value, Mapping):
            if value is not None:
                self.refuse(path, f"must be a mapping, not {quoted(value)}", f"{path}: {{…}}")
            return level()
        known: dict[str, Any] = {}
        for name, item in self._as_today(value, path, level).items():
            if item is None:
                continue
            if name in level.dropped:
                self.drop(f"{path}.{name}", item, level.dropped[name])
            elif name in level.refused:
                if not _is_empty(item):
                    self.refuse(
                        f"{path}.{name}", f"is not supported: {level.refused[name]}", _LEAVE_OUT
                    )
            else:
                known[name] = item
        return self._validate(known, path, level)

    def refuse(self, path: str, problem: str, example: str) -> None:
        """Add a problem: what is wrong with the field at `path`, and what would be right."""
        self.problems.append(Problem(self._written(path), problem, example=example))

    def drop(self, path: str, value: object, reason: str) -> None:
        """List a field that has no effect here."""
        if not _is_empty(value):
            self.substitute(path, value, "nothing", reason)

    def substitute(self, path: str, requested: object, replacement: str, reason: str) -> None:
        """List something that the job gets in another form than the manifest requests."""
        text = requested
        if not isinstance(text, str):
            text = json.dumps(requested, ensure_ascii=False)
        if len(text) > _REQUESTED_CHARS_MAX:
            text = f"{text[:_REQUESTED_CHARS_MAX]}…"
        item = {
            "field": self._written(path),
            "requested": text,
            "replacement": replacement,
            "reason": reason,
        }
        if item not in self.substitutions:
            self.substitutions.append(item)

    def raise_if_any(self) -> None:
        """Raise InvalidJob with every problem, if there is one."""
        if self.problems:
            raise InvalidJob(self.problems)

    def at_origin(self, problem: Problem) -> Problem:
        """Return a problem of the job file as a problem of the manifest."""
        matches = [path for path in self.origins if _is_at_or_below(problem.field, path)]
        if not matches:
            return problem
        longest = max(matches, key=len)
        rest = problem.field[len(longest) :].lstrip(".")
        text = problem.problem
        if rest:
            text = f"leads to {rest} of the job file, which {problem.problem}"
        return Problem(self._written(self.origins[longest]), text, example=problem.example)

    def _as_today(self, value: Mapping[str, Any], path: str, level: type[Level]) -> dict[str, Any]:
        """Return the mapping with each field of an earlier release where today's release has it."""
        today = {name: item for name, item in value.items() if name not in level.moved}
        for name, holder in level.moved.items():
            others = today.get(holder) or {}
            if value.get(name) is None or not isinstance(others, Mapping):
                continue
            self.moved[f"{path}.{holder}.{name}"] = f"{path}.{name}"
            if name in others:
                self.refuse(f"{path}.{name}", f"is given under {holder} as well", "give it once")
            today[holder] = {**others, name: value[name]}
        return today

    def _written(self, path: str) -> str:
        """Return the path as the manifest has it."""
        for today, written in self.moved.items():
            if _is_at_or_below(path, today):
                return written + path[len(today) :]
        return path

    def _validate(self, known: dict[str, Any], path: str, level: type[AnyLevel]) -> AnyLevel:
        try:
            return level.model_validate(known)
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            place = path
            for step in detail["loc"]:
                place += f".{step}" if isinstance(step, str) else f"[{step}]"
            if detail["type"] == "extra_forbidden":
                names = sorted(str(info.alias) for info in level.model_fields.values())
                self.refuse(place, "is not a known field", f"one of {', '.join(names)}")
            else:
                self.refuse(
                    place, f"is {quoted(detail['input'])}: {detail['msg'].lower()}", _LEAVE_OUT
                )
            known.pop(str(detail["loc"][0]), None)
        return level.model_validate(known)
