"""The `trainmaster` program: collects the groups of commands and turns expected errors into one line and a status.

Exit status: 0 done · 1 it could not be done (the reason on standard error) · 2 wrong usage · 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Final, NoReturn

import typer
from pydantic import ValidationError

from cli import dead_letters, jobs, local, logs, orphans, schedule, simulate, submit, why
from cli import local_run as run_command
from cli.doctor import command
from cli.installation import settings_problems
from cli.output import complain, say
from emulators.stack.state import StackError
from shared.errors import PermanentError, TemporaryError
from shared.settings import Settings

INTERRUPTED: Final = 130

app = typer.Typer(
    name="trainmaster",
    help="Distributed training on Compute Engine and Cloud TPU, driven by functions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        say(f"trainmaster {version('trainmaster')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before any command."""


local.app.command("run")(run_command.run)
app.add_typer(local.app, name="local")
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead_letters.app, name="dead-letters")
app.command(context_settings={"allow_extra_args": True})(submit.submit)
app.command()(schedule.schedule)
jobs.app.command()(logs.logs)
jobs.app.command()(why.why)
app.command()(logs.logs)
app.command()(why.why)
app.command()(why.replay)
app.command()(orphans.orphans)
app.command()(command.doctor)
app.command()(simulate.simulate)


def run() -> None:
    """The console script. A traceback here means a bug; what a user can cause ends in one line."""
    try:
        app()
    except (StackError, PermanentError, TemporaryError) as error:
        _end(_cause(error) or str(error))
    except ValidationError as error:
        if error.title != Settings.__name__:
            raise
        _end("; ".join(settings_problems(error)))
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Without this Python complains once more when it flushes at exit.
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if (said := _cause(error)) is None:
            raise
        _end(said)


def _cause(error: BaseException) -> str | None:
    """What a person can do about it, where the error, or the one it came of, tells."""
    from shared.gcp.refusals import told

    return told(error) or (told(error.__cause__) if error.__cause__ else None)


def _end(said: str) -> NoReturn:
    complain(f"trainmaster: {said}")
    sys.exit(1)


if __name__ == "__main__":
    run()
