"""The problems of a job document, all at once, each with its field and a correct value.

`Problems` collects them while a document is read, and with them what is substituted. Code addresses
a field by its canonical path (`FieldPath`, the camelCase names of AI Platform Training, the
service); messages show the names as the sender spelled them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.origin import Substitution

FieldPath = tuple[str | int, ...]
"""A place in the document, in canonical names: ("trainingInput", "args", 1)."""

ROOT: Final = "job"
"""The field of a problem that concerns the whole document."""
_QUOTED_CHARS_MAX: Final = 60
"""Characters of a value that a message quotes."""
_PRIVATE: Final = re.compile(r"(?:^|\.)(?:secrets|env)(?:[.\[]|$)")
"""The part of a field's path behind which the names of environment variables and secrets stand."""
_QUOTED_VALUE: Final = re.compile(
    r"; .* without quotes.*|; this is \".*|,? (?:not|has the name) [\"'{\[\d].*", re.DOTALL
)
"""The parts of a problem's text that quote a value."""


@dataclass(frozen=True)
class Problem:
    """One problem of a job document."""

    field: str
    """Path of the field as the sender wrote it."""
    problem: str
    """What is wrong, as the predicate of a sentence whose subject is the field."""
    example: str
    """A correct value, or what to do instead."""

    def __str__(self) -> str:
        """Return the problem as the service words it: `Field: <snake_case path> Error: <text>`.

        Source: all validation errors of AI Platform Training.
        """
        return " ".join(f"Field: {service_path(self.field)} Error: {self.problem}".splitlines())

    @property
    def as_sent(self) -> str:
        """The same with the name that the sender wrote, and with a correct value."""
        end = "" if self.problem.endswith("?") else "."
        text = f"Field: {self.field} Error: {self.problem}{end} Example: {self.example}"
        return " ".join(text.splitlines())


# The name is that of the outcome that the sender sees, not of a fault of this program.
class InvalidJob(Exception):  # noqa: N818
    """The job cannot be accepted.

    `problems` has the first one of each field, and is never empty. The text has a line per problem
    in the form that AI Platform Training gave it.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        by_field: dict[str, Problem] = {}
        for problem in reversed([*problems]):  # so that the first one of each field stays
            shown = _without_values(problem)
            by_field[shown.field] = shown
        self.problems: tuple[Problem, ...] = tuple(reversed(by_field.values()))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _without_values(problem: Problem) -> Problem:
    """Return the problem without the value of an environment variable or secret.

    Problems are logged and published.
    """
    private = _PRIVATE.search(problem.field)
    if private is None:
        return problem
    path = problem.field[: private.end()]
    name = problem.field[private.end() :]
    name = re.split(r"[=\s]", name.lstrip())[0]  # the value may be in the name by mistake
    text = _QUOTED_VALUE.sub("", problem.problem)
    has_value = text != problem.problem
    return Problem(path + name, text, example="text in quotes" if has_value else problem.example)


def service_path(path: str) -> str:
    """Return the path as the service writes it.

    `jobId` → `job.job_id`, `trainingInput.workerType` → `training_input.worker_type`.

    Source: real answers name fields of the job itself `job.job_id`, and fields below it without
    that prefix.
    """
    head, *rest = path.split(".")
    if head == "labels":
        return f"{ROOT}.{path}"
    if head in ("jobId", "job_id"):
        return f"{ROOT}.job_id"
    return ".".join(snake_case(step) for step in (head, *rest))


def snake_case(name: str) -> str:
    """Convert a name to that of Google's protocol buffers: `workerType` → `worker_type`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def quoted(value: object) -> str:
    """Return a value as JSON, shortened, to be quoted in a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _QUOTED_CHARS_MAX else f"{text[:_QUOTED_CHARS_MAX]}…"


def yaml_line(example: Mapping[str, object]) -> str:
    """Return a mapping as one line of YAML, for examples of more than one field."""
    return ", ".join(
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in example.items()
    )


class Problems:
    """The problems so far.

    Each field has at most one, the first: its consequences are not reported as well.
    """

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self.names: Final[dict[FieldPath, str]] = {}
        """Path of a known field → its name as the sender spelled it.

        An empty name: the sender left this level out (a body without `trainingInput:`).
        """
        self.substitutions: Final[list[Substitution]] = []
        """What the job gets in place of something that it requests."""
        self._by_field = {problem.field: problem for problem in problems}
        self._of_document: list[Problem] = []
        self._misspelled: set[str] = set()

    def __iter__(self) -> Iterator[Problem]:
        return iter((*self._of_document, *self._by_field.values()))

    def raise_if_any(self) -> None:
        """Raise InvalidJob with every problem, if there is one."""
        problems = tuple(self)
        if problems:
            raise InvalidJob(problems)

    def spelled_path(self, path: FieldPath) -> str:
        """Return a path as the sender wrote it: `trainingInput.args[1]`."""
        text = ""
        for depth, step in enumerate(path, start=1):
            if isinstance(step, int):
                text += f"[{step}]"
                continue
            name = self.spelled_name(path[:depth])
            if name:
                text += f".{name}" if text else name
        return text or ROOT

    def spelled_name(self, path: FieldPath) -> str:
        """Return the last name of a path as the sender wrote it.

        The name of an absent field is in the style of the names next to it.
        """
        written = self.names.get(path)
        if written is not None:
            return written
        leaf = str(path[-1])
        parent = path[:-1]
        siblings = (name for other, name in self.names.items() if other[:-1] == parent)
        is_snake_case = bool(parent) and any("_" in name for name in siblings)
        return snake_case(leaf) if is_snake_case else leaf

    def add(self, path: FieldPath, problem: str, *, example: object) -> None:
        """Add a problem.

        `example` is a correct value, shown as `name: value`, or bare for a list item.
        """
        text = json.dumps(example, ensure_ascii=False)
        if not isinstance(path[-1], int):
            named = path if self.spelled_name(path) else path[:-1]  # the sender left `path` out
            text = f"{self.spelled_name(named)}: {text}"
        self.add_text(path, problem, advice=text)

    def add_text(self, path: FieldPath, problem: str, *, advice: str) -> None:
        """Add a problem with advice that is not a value of the field itself."""
        if not self._is_covered(path):
            spelled = self.spelled_path(path)
            self._by_field[spelled] = Problem(spelled, problem, example=advice)

    def substitute(self, path: FieldPath, requested: str, replacement: str, reason: str) -> None:
        """Note that the job gets something else than the field requests.

        The same note is kept once.
        """
        note = Substitution(self.spelled_path(path), requested, replacement, reason)
        if note not in self.substitutions:
            self.substitutions.append(note)

    def add_of_document(self, problem: Problem) -> None:
        """Add a problem of the document's structure; those of its fields are still reported."""
        self._of_document.append(problem)

    def mark_misspelled(self, path: FieldPath) -> None:
        """Record that the sender probably meant this field, so that its absence is no problem."""
        self._misspelled.add(self.spelled_path(path))

    def has_any_at(self, *paths: FieldPath) -> bool:
        """Return whether the value at any of these paths is unknown.

        It is if the value, something around it or something in it has a problem.
        """
        return bool(self._by_field or self._misspelled) and any(map(self._is_affected, paths))

    def _is_affected(self, path: FieldPath) -> bool:
        spelled = self.spelled_path(path)
        is_inside_affected = any(
            name.startswith((f"{spelled}.", f"{spelled}[")) for name in self._by_field
        )
        return is_inside_affected or self._is_covered(path)

    def _is_covered(self, path: FieldPath) -> bool:
        around = {self.spelled_path(path[:depth]) for depth in range(1, len(path) + 1)}
        return not around.isdisjoint(self._by_field) or not around.isdisjoint(self._misspelled)
