"""Groups of commands, each of which is imported when it is used.

A list of the commands imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import dropwhile
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from trainmaster.cli.local_distribution import PACKAGE, import_local
from trainmaster.cli.option_habits import HintingCommand

_SIMILAR: Final = 0.7
"""Similarity, from 0 to 1, from which a misspelled command is taken for another one."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is a function or a `typer.Typer` of a module."""

    summary: str
    """The first paragraph of its help, for lists."""
    module: str = ""
    """Its module in the package; empty: the module with the command's name."""
    attribute: str = ""
    """Its name in the module; empty: the command's name."""
    reads_as_gcloud: bool = False
    """Whether it has gcloud's options, and arguments of a program after `--`."""
    is_local: bool = False
    """Whether it is a command of the distribution `trainmaster-local`."""

    def load(self, name: str) -> Any:
        """Return the command. Raises PermanentError if its distribution is not installed."""
        own_name = name.replace("-", "_")
        module_name = self.module or own_name
        if self.is_local:
            module = import_local(f"{PACKAGE}.cli.{module_name}")
        else:
            module = import_module(f"trainmaster.cli.{module_name}")
        value = getattr(module, self.attribute or own_name)
        app = value if isinstance(value, typer.Typer) else typer.Typer(add_completion=False)
        # rich, which draws frames around help texts, takes half a second to import.
        app.rich_markup_mode = None
        _give_hints(app)
        if app is not value:
            app.command(
                cls=self._command_class(),
                context_settings={"allow_extra_args": self.reads_as_gcloud},
            )(value)
        command = typer.main.get_command(app)
        command.name = name
        _leave_types_out(command)
        return command

    def _command_class(self) -> type[TyperCommand]:
        if not self.reads_as_gcloud:
            return HintingCommand
        from trainmaster.cli.gcloud_command import GcloudCommand

        return GcloudCommand


def _give_hints(app: typer.Typer) -> None:
    """Let the commands of a group answer wrong options and values as all others do."""
    for command in app.registered_commands:
        if command.cls is TyperCommand:
            command.cls = HintingCommand


def _leave_types_out(command: Any) -> None:
    """Show arguments by their names alone: `JOB`, and not `JOB <str>`.

    typer leaves the types of options out if they have a metavar, but those of arguments never.
    """
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            setattr(parameter, "display_type_rich", _no_type)  # noqa: B010 - replaces a method
    for inner in getattr(command, "commands", {}).values():
        _leave_types_out(inner)


def _no_type(**_: object) -> str:
    return ""


class LazyGroup(TyperGroup):
    """A group with lazy commands after its own.

    Parameters of methods are `Any`: they are objects of the copy of click that typer contains.
    """

    lazy: ClassVar[Mapping[str, LazyCommand]] = {}
    sections: ClassVar[Mapping[str, Iterable[str]]] = {}
    """Heading → the commands below it. Without headings, all commands have one."""
    habits: ClassVar[Mapping[str, str]] = {}
    """Words of other tools → the command that is meant."""
    foreign_groups: ClassVar[Iterable[str]] = ()
    """Words of other tools that stand before such a word."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._lists_commands = False
        for name, command in self.lazy.items():
            self.commands[name] = TyperCommand(name, short_help=command.summary)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.lazy or self._lists_commands:
            return super().get_command(ctx, cmd_name)
        return self.lazy[cmd_name].load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the command that a word of another tool, or a mistyped word, means."""
        word = args[0]
        if word not in self.commands and not word.startswith("-"):
            meant = self._meaning_of(args)
            hint = f" Did you mean `trainmaster {meant}`?" if meant else ""
            ctx.fail(f"No such command {word!r}.{hint}")
        return super().resolve_command(ctx, args)

    def _meaning_of(self, words: Iterable[str]) -> str:
        """Return the command that the words of another tool mean; empty: it is not known."""
        after_groups = dropwhile(lambda word: word in (*self.foreign_groups, "jobs"), words)
        word = next(after_groups, "list")
        if word in self.habits or word in self.commands:
            return self.habits.get(word, word)
        return next(iter(get_close_matches(word, self.commands, n=1, cutoff=_SIMILAR)), "")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands below their headings, each with its whole summary."""
        if not self.sections:
            super().format_commands(ctx, formatter)
            return
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.lazy[name].summary) for name in names])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._lists_commands = True
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._lists_commands = True
        return super().shell_complete(ctx, incomplete)
