"""The `trainmaster` program: all commands, and expected errors as one line and an exit status.

Exit status:

    0    success
    1    failure, with the reason on standard error
    2    wrong usage
    130  interrupted
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperOption

from trainmaster.cli import completion
from trainmaster.cli.command_table import COMMANDS, FOREIGN_GROUPS, HABITS, SECTIONS
from trainmaster.cli.installation import settings_problems
from trainmaster.cli.lazy import LazyGroup
from trainmaster.cli.output import complain, say
from trainmaster.errors import PermanentError, TemporaryError

INTERRUPTED: Final = 130


class Commands(LazyGroup):
    """All commands."""

    lazy = COMMANDS
    sections = SECTIONS
    habits = HABITS
    foreign_groups = FOREIGN_GROUPS

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, those that typer adds with the words of `completion`."""
        params = super().get_params(ctx)
        for parameter in params:
            if isinstance(parameter, TyperOption) and parameter.name in completion.HELP:
                parameter.help = completion.HELP[parameter.name]
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and completion.show_or_install(args):
            raise typer.Exit
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="trainmaster",
    cls=Commands,
    help="Distributed training on Compute Engine and Cloud TPU, driven by functions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    rich_markup_mode=None,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        say(f"trainmaster {version('trainmaster')}")
        raise typer.Exit


@app.callback()
def _global_options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options before any command."""


def run() -> None:
    """Run the console script.

    Errors that a user can cause end in one line; a traceback means a bug.
    """
    try:
        app()
    except (PermanentError, TemporaryError) as error:
        _exit_with(_advice(error) or str(error))
    except BrokenPipeError:
        # The reader, such as `| head`, has closed the pipe. Python would report it again when it
        # flushes at exit.
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = "; ".join(settings_problems(error)) or _advice(error)
        if not message:
            raise
        _exit_with(message)


def _advice(error: BaseException) -> str | None:
    """Return what the user can do about an error, or about its cause. None if that is unknown."""
    from trainmaster.gcp.errors import explain

    return explain(error) or (explain(error.__cause__) if error.__cause__ else None)


def _exit_with(message: str) -> NoReturn:
    complain(f"trainmaster: {message}")
    sys.exit(1)


if __name__ == "__main__":
    run()
