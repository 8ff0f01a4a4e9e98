"""`trainmaster ssh JOB REPLICA [-- COMMAND]`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_output import find_job
from trainmaster.cli.options import JobId
from trainmaster.cli.output import complain
from trainmaster.cli.ssh import google_cloud, local_stack
from trainmaster.cli.ssh.remote_command import as_shell_text, in_container
from trainmaster.cli.ssh.target import find_target
from trainmaster.errors import PermanentError
from trainmaster.settings import settings


def ssh(
    job_id: JobId,
    replica: Annotated[str, typer.Argument(help="Replica, such as worker-0.", metavar="REPLICA")],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Command to run in place of a shell, after --.", metavar="[-- COMMAND]"
        ),
    ] = None,
    container: Annotated[
        bool, typer.Option("--container", help="Enter the container of the program.")
    ] = False,
    host: Annotated[
        int,
        typer.Option(
            "--host", min=0, metavar="NUMBER", help="Host of a TPU slice, numbered from 0."
        ),
    ] = 0,
) -> None:
    """Open a shell on the VM of a replica, or run a command there. The exit status is that of the
    command.
    """
    store = open_store()
    target = find_target(find_job(store, job_id), replica, host)
    if container and not target.has_container:
        raise PermanentError(f"{target.replica} runs no container: leave out --container")
    is_local = bool(settings().compute_endpoint)
    has_terminal = sys.stdin.isatty()
    words = command or []
    if container:
        text = in_container(words, has_terminal=has_terminal, sudo=not is_local)
    else:
        text = as_shell_text(words) if words else ""
    if not text and has_terminal:
        complain(f"{target.replica} of {job_id} on {target.vm} ({target.zone})")
    if is_local:
        status = local_stack.run(target, text)
    else:
        status = google_cloud.run(target, settings().project, text, has_terminal=has_terminal)
    if status == local_stack.CONNECTION_LOST:
        complain(
            f"the connection to {target.vm} is closed. `trainmaster why {job_id}` shows what"
            " happened to it"
        )
    raise typer.Exit(status)
