"""What is wrong with a job, told to its sender: every problem at once, each with its field and an example of right.

`Findings` collects problems while a job is read. Fields are addressed by their canonical place (`Loc`: the service's
own camelCase names) and reported as the sender spelled them, which `Spelling` remembers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Loc = tuple[str | int, ...]
"""A place in the document in canonical names: ("trainingInput", "args", 1)."""

ROOT: Final = "job"
"""The field of a problem that concerns the document as a whole."""
_GIVEN_CHARS_MAX: Final = 60


@dataclass(frozen=True)
class Problem:
    """`field`: the path as the sender wrote it; `problem`: a predicate of it; `example`: something right instead."""

    field: str
    problem: str
    example: str

    def __str__(self) -> str:
        """Source: the style of all of the service's validation errors, `Field: <snake_case path> Error: <text>`."""
        return " ".join(f"Field: {service_path(self.field)} Error: {self.problem}".splitlines())


class InvalidJob(Exception):  # noqa: N818 - the name of what the sender gets, not of a fault in here
    """The job cannot be accepted. `problems` is never empty; the text is the service's, one line per problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def service_path(path: str) -> str:
    """`jobId` → `job.job_id`, `trainingInput.workerType` → `training_input.worker_type`.

    Source: real answers name fields of the Job itself `job.job_id`, fields below it without that prefix.
    """
    head, *rest = path.split(".")
    if head == "labels":
        return f"{ROOT}.{path}"
    if head in ("jobId", "job_id"):
        return f"{ROOT}.job_id"
    return ".".join(snake_case(step) for step in (head, *rest))


def snake_case(name: str) -> str:
    """As in the service's proto: `workerType` → `worker_type`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def given(value: object) -> str:
    """A value as it may be quoted in a sentence: JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _GIVEN_CHARS_MAX else f"{text[:_GIVEN_CHARS_MAX]}…"


@dataclass
class Spelling:
    """How the sender spelled the names of known fields. An empty spelling is a level the sender left out."""

    names: dict[Loc, str] = field(default_factory=dict)

    def path(self, loc: Loc) -> str:
        path = ""
        for depth, step in enumerate(loc, start=1):
            if isinstance(step, int):
                path += f"[{step}]"
            elif name := self.name(loc[:depth]):
                path += f".{name}" if path else name
        return path or ROOT

    def name(self, loc: Loc) -> str:
        """The last name of a place: as written, or, if it is absent, in the style of its written neighbours."""
        written = self.names.get(loc)
        if written is not None:
            return written
        leaf = str(loc[-1])
        siblings = (name for at, name in self.names.items() if at[:-1] == loc[:-1])
        return snake_case(leaf) if loc[:-1] and any("_" in name for name in siblings) else leaf


class Findings:
    """The problems found so far. A field has one problem, the first: what follows from it is not reported as well."""

    def __init__(self, spelling: Spelling, problems: Iterable[Problem] = ()) -> None:
        self._spelling = spelling
        self._problems = {problem.field: problem for problem in problems}
        self._suspects: set[str] = set()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems.values())

    def path(self, loc: Loc) -> str:
        return self._spelling.path(loc)

    def name(self, loc: Loc) -> str:
        return self._spelling.name(loc)

    def add(self, loc: Loc, problem: str, example: object) -> None:
        """`example` is a right value; it is shown as a line of the job file, or bare for an item of a list."""
        shown = json.dumps(example, ensure_ascii=False)
        named = loc if self.name(loc) else loc[:-1]
        self.add_text(loc, problem, shown if isinstance(loc[-1], int) else f"{self.name(named)}: {shown}")

    def add_text(self, loc: Loc, problem: str, example: str) -> None:
        """As `add`, with an example that is no value of the field itself."""
        path = self.path(loc)
        if not self._covered(loc):
            self._problems[path] = Problem(path, problem, example)

    def suspect(self, loc: Loc) -> None:
        """The sender probably meant this field and misspelled it: that it is absent is no second problem."""
        self._suspects.add(self.path(loc))

    def doubtful(self, *locs: Loc) -> bool:
        """Whether the value of any of these is unknown, because it, something around it or in it has a problem."""
        for loc in locs:
            path = self.path(loc)
            below = any(name.startswith((f"{path}.", f"{path}[")) for name in self._problems)
            if below or self._covered(loc):
                return True
        return False

    def _covered(self, loc: Loc) -> bool:
        paths = {self.path(loc[:depth]) for depth in range(1, len(loc) + 1)}
        return not paths.isdisjoint(self._problems) or not paths.isdisjoint(self._suspects)


def lines(example: Mapping[str, object]) -> str:
    """A mapping as one line of YAML (which JSON is): for examples of more than one field."""
    return ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in example.items())
