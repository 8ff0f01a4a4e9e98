"""The `trainmaster` program: collects the groups of commands and turns expected errors into one line and a status.

Exit status: 0 done · 1 it could not be done (the reason on standard error) · 2 wrong usage · 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Final

import typer

from cli import dead_letters, doctor, jobs, local, logs, orphans, schedule, simulate, submit, why
from cli import run as run_command
from cli.output import complain
from emulators.state import StackError
from shared.errors import PermanentError, TemporaryError

INTERRUPTED: Final = 130

app = typer.Typer(
    name="trainmaster",
    help="Distributed training on Compute Engine and Cloud TPU, driven by functions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
app.command()(doctor.doctor)
app.command()(simulate.simulate)


def run() -> None:
    """The console script. A traceback here means a bug; what a user can cause ends in one line."""
    try:
        app()
    except (StackError, PermanentError, TemporaryError) as error:
        complain(f"trainmaster: {error}")
        sys.exit(1)
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Without this Python complains once more when it flushes at exit.
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run()
