"""Read a command line by a table of arguments.

`--name=value`, `--name value`, `--flag` and `--flag=false` are accepted, with `-` or `_` in names.
The last of several values of one argument wins: a tuning job appends the values of its trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..arguments.argument import (
    BOOLEANS,
    STORAGE,
    Argument,
    ArgumentNote,
    ArgumentProblem,
    ArgumentTable,
    Kind,
    Value,
)


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """The arguments of a command line."""

    values: dict[str, Value]
    """The value of each argument of the table, with defaults."""
    notes: tuple[ArgumentNote, ...]


class InvalidArgumentsError(Exception):
    """A command line that an algorithm cannot run.

    The text names each argument, its value and what is allowed.
    """

    def __init__(self, problems: Sequence[ArgumentProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def parse_arguments(
    table: ArgumentTable, tokens: Sequence[str], tuned: frozenset[str] = frozenset()
) -> ParsedArguments:
    """Return the values of a command line. Raises InvalidArgumentsError with every problem.

    `tuned`: arguments that a tuning job adds later, so that they may be missing now.
    """
    problems: list[ArgumentProblem] = []
    notes: list[ArgumentNote] = []
    values: dict[str, Value] = {argument.name: argument.default for argument in table.arguments}
    given = dict(_pairs(table, tokens, problems))
    for name, text in given.items():
        argument = table.find(name)
        if argument is None:
            problem = f"is not an argument of this algorithm; did you mean --{table.nearest(name)}?"
            problems.append(ArgumentProblem(name, problem, example="leave it out"))
        else:
            values[name] = _read(argument, text, problems, notes)
    problems.extend(
        ArgumentProblem(argument.name, f"is required: {argument.help}", example=_example(argument))
        for argument in table.arguments
        if argument.is_required and argument.name not in given and argument.name not in tuned
    )
    if not problems:
        for rule in table.rules:
            for finding in rule(values, frozenset(given)):
                if isinstance(finding, ArgumentProblem):
                    problems.append(finding)
                else:
                    notes.append(finding)
    if problems:
        raise InvalidArgumentsError(problems)
    return ParsedArguments(values, tuple(notes))


def _pairs(
    table: ArgumentTable, tokens: Sequence[str], problems: list[ArgumentProblem]
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each argument of the command line; note what is malformed in
    `problems`.
    """
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--") or len(token) == len("--"):
            problems.append(
                ArgumentProblem(
                    name="",
                    text=f"{token!r} is not an argument: each begins with --",
                    example="--name=value",
                )
            )
            continue
        name, has_value, text = token.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        argument = table.find(name)
        is_flag = argument is not None and argument.kind is Kind.FLAG
        if not has_value:
            following = rest[0] if rest else "--"  # at the end, no value follows
            may_follow = not is_flag or following.lower() in BOOLEANS
            if may_follow and not following.startswith("--"):
                text = rest.pop(0)
            elif is_flag:
                text = "true"
            elif argument is not None:
                problems.append(
                    ArgumentProblem(
                        name, f"needs a value: {argument.allowed}", example=_example(argument)
                    )
                )
                continue
        yield name, text


def _read(
    argument: Argument, text: str, problems: list[ArgumentProblem], notes: list[ArgumentNote]
) -> Value:
    """Return the value; the default if the text is not allowed."""
    if argument.ignored:
        notes.append(ArgumentNote(argument.name, text, "no effect", argument.ignored))
        return argument.default
    for requested, replacement, reason in argument.replaced:
        if text == requested:
            notes.append(ArgumentNote(argument.name, text, replacement, reason))
            text = replacement
    try:
        return argument.read(text)
    except ValueError:
        problems.append(
            ArgumentProblem(
                argument.name,
                f"must be {argument.allowed}, not {text!r}",
                example=_example(argument),
            )
        )
        return argument.default


def _example(argument: Argument) -> str:
    """Return the argument with an allowed value, for a message: its default, if that is a text or a
    number.
    """
    if argument.kind is Kind.PATH:
        return f"--{argument.name}={STORAGE}my-bucket/data/training.csv"
    if argument.choices:
        return f"--{argument.name}={argument.choices[0]}"
    fallback = {Kind.FLAG: "true", Kind.INTEGERS: "30,30", Kind.TEXT: "text"}.get(
        argument.kind, "1"
    )
    default = argument.default
    is_shown = isinstance(default, int | float | str) and not isinstance(default, bool)
    if not is_shown or default == "":
        return f"--{argument.name}={fallback}"
    return f"--{argument.name}={default}"
