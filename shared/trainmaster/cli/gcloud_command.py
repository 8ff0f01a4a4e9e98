"""A command with gcloud's options for a training job, which reads its command line as gcloud."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import typer

from trainmaster.cli.gcloud_flags import FLAGS, Flag
from trainmaster.cli.option_habits import HintingSubmit

_BOOLEANS: Final = {"true": True, "yes": True, "false": False, "no": False}
"""Source: arg_parsers.ArgBoolean."""


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command, which has a parameter `**flags`, an option for each row of FLAGS."""
    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(flag)
        )
        for name, flag in FLAGS.items()
    ]
    with_added = signature.replace(parameters=[*own, *added])
    command.__signature__ = with_added  # type: ignore[attr-defined]
    return command


def _annotation(flag: Flag) -> Any:
    """Return the annotation that typer makes an option of. Whole numbers are not negative."""
    least = 0 if flag.type is int else None
    option = typer.Option(
        help=flag.help,
        metavar=flag.metavar,
        rich_help_panel=flag.panel,
        hidden=not flag.help,
        min=least,
    )
    return Annotated[flag.type | None, option]


class GcloudCommand(HintingSubmit):
    """Reads a command line as gcloud does.

    `--flag=true` is read, and arguments of the program are after `--` only. The types are those of
    the click that typer contains; it does not export them.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of `--help`, by panel."""
        panels = defaultdict[str, list[tuple[str, str]]](list)
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                title = f"{parameter.param_type_name}s".capitalize()
                panels[getattr(parameter, "rich_help_panel", None) or title].append(record)
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before `--`, and return the arguments after it."""
        end = args.index("--") if "--" in args else len(args)
        try:
            super().parse_args(ctx, list(self._with_flag_names(args[:end])))
        except Exception as error:
            option = getattr(error, "option_name", None)
            names_folder = any(word.partition("=")[0] == "--folder" for word in args)
            if option and names_folder and "--" not in args:
                ctx.fail(
                    f"No such option: {option}. The command that runs in the folder belongs after"
                    " --, with its options: -- python train.py"
                )
            raise
        if ctx.args:
            ctx.fail(
                f"unrecognized arguments: {' '.join(ctx.args)}. Arguments of the program belong"
                " after --"
            )
        ctx.args = args[end + 1 :]
        return args[end + 1 :]

    def _with_flag_names(self, args: list[str]) -> Iterator[str]:
        """Replace `--flag=true` and `--flag true` by `--flag`, and with false by `--no-flag`."""
        flags: set[str] = set()
        for parameter in self.params:
            if parameter.secondary_opts:
                flags.update(parameter.opts)
        words = list(args)
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            name = "--quiet" if name == "-q" else name
            if name not in flags:
                yield word
                continue
            if not equals and words and words[0].lower() in _BOOLEANS:
                value = words.pop(0)
            boolean = value.lower() or "true"
            if boolean not in _BOOLEANS:
                raise typer.BadParameter(
                    f"{value!r} is not one of {', '.join(_BOOLEANS)}", param_hint=name
                )
            yield name if _BOOLEANS[boolean] else f"--no-{name.removeprefix('--')}"
