"""The `trainmaster` program: all commands, and expected errors as one line and an exit status.

Exit status: 0 success · 1 failure, with the reason on standard error · 2 wrong usage · 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any, Final, NoReturn

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from trainmaster.cli import (
    advise,
    console,
    convert,
    dead_letters,
    job_schema,
    jobs,
    logs,
    orphans,
    prices,
    runtimes,
    schedule,
    simulate,
    submit,
    top,
    why,
)
from trainmaster.cli.doctor import command as doctor
from trainmaster.cli.gcloud_command import GcloudCommand
from trainmaster.cli.installation import LOCAL_EXTRA_MISSING, settings_problems
from trainmaster.cli.output import complain, say
from trainmaster.cli.ssh import command as ssh
from trainmaster.cli.tensorboard import command as tensorboard
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.settings import Settings

INTERRUPTED: Final = 130
LOCAL: Final = "local"


class CommandsWithLocal(TyperGroup):
    """All commands, and `local`, which is imported only if it is used or listed, because it needs the extra `local`.

    The types are those of the click that typer contains; it does not export them.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return [LOCAL, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _local_command() if cmd_name == LOCAL else super().get_command(ctx, cmd_name)


def _local_command() -> Any:
    """Return the commands of `trainmaster local`, or a command that names the missing extra."""
    try:
        from trainmaster.cli.local.commands import app as local
    except ModuleNotFoundError:
        local = typer.Typer()
        local.command(LOCAL, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
            _report_missing_extra
        )
    command = typer.main.get_command(local)
    command.name = LOCAL  # the list of all commands prints it
    return command


def _report_missing_extra(_: typer.Context) -> None:
    """Run the whole system on this machine. Needs the extra `local`."""
    raise PermanentError(LOCAL_EXTRA_MISSING)


app = typer.Typer(
    name="trainmaster",
    cls=CommandsWithLocal,
    help="Distributed training on Compute Engine and Cloud TPU, driven by functions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        say(f"trainmaster {version('trainmaster')}")
        raise typer.Exit


@app.callback()
def _global_options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before any command."""


app.add_typer(jobs.app, name="jobs")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(schedule.app, name="schedule")
app.add_typer(prices.app, name="prices")
app.command(cls=GcloudCommand, context_settings={"allow_extra_args": True})(submit.submit)
app.command()(convert.convert)
jobs.app.command()(logs.logs)
jobs.app.command()(why.why)
jobs.app.command()(top.top)
jobs.app.command()(advise.advise)
app.command()(logs.logs)
app.command()(why.why)
app.command()(why.replay)
app.command()(ssh.ssh)
app.command()(tensorboard.tensorboard)
app.command()(orphans.orphans)
app.command()(runtimes.runtimes)
app.command()(console.console)
app.command()(doctor.doctor)
app.command()(simulate.simulate)
app.command()(job_schema.job_schema)


def run() -> None:
    """Run the console script. Errors that a user can cause end in one line; a traceback means a bug."""
    try:
        app()
    except (PermanentError, TemporaryError) as error:
        _exit_with(_advice(error) or str(error))
    except ValidationError as error:
        if error.title != Settings.__name__:
            raise
        _exit_with("; ".join(settings_problems(error)))
    except BrokenPipeError:
        # The reader, such as `| head`, has closed the pipe. Python would report it again when it flushes at exit.
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if (advice := _advice(error)) is None:
            raise
        _exit_with(advice)


def _advice(error: BaseException) -> str | None:
    """Return what the user can do about an error, or about its cause. None if that is unknown."""
    from trainmaster.gcp.user_errors import explain

    return explain(error) or (explain(error.__cause__) if error.__cause__ else None)


def _exit_with(message: str) -> NoReturn:
    complain(f"trainmaster: {message}")
    sys.exit(1)


if __name__ == "__main__":
    run()
