"""`trainmaster cancel`: cancel the jobs that are named, or all that options choose."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from trainmaster.cli.installation import open_store, user_name
from trainmaster.cli.job_filters import ByLabel, ByUser, Mine, job_filter
from trainmaster.cli.job_output import find_job
from trainmaster.cli.options import OutputFormat, complete_job_id
from trainmaster.cli.output import Format, print_json, say
from trainmaster.core.model.job import JobState
from trainmaster.errors import PermanentError

CANCELLED_MAX: Final = 1000
"""Jobs that `cancel --all` cancels at once, the newest ones."""


def cancel(
    job_ids: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of the jobs.", metavar="JOB...", autocompletion=complete_job_id),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All jobs that have not ended; with --mine, --user or --label only these.",
        ),
    ] = False,
    user: ByUser = None,
    mine: Mine = False,
    label: ByLabel = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Cancel jobs and delete their VMs. A job that has ended stays as it is, which is not an
    error.
    """
    names_jobs = bool(job_ids)
    has_filter = bool(user or mine or label)
    names_nothing = not names_jobs and not everything
    names_jobs_twice = names_jobs and (everything or has_filter)
    if names_nothing or names_jobs_twice:
        raise PermanentError("name the jobs to cancel, or give --all")
    store = open_store()
    if everything:
        live_states = [state for state in JobState if not state.is_terminal]
        only = job_filter(live_states, user, mine, label)
        job_ids = [job.job_id for job in store.recent_jobs(CANCELLED_MAX, after=None, only=only)]
    chosen = list(dict.fromkeys(job_ids or ()))  # each once, in the order of the command
    for job_id in chosen:
        find_job(store, job_id)  # a job that does not exist is an error, before any is cancelled
    from trainmaster.flows.user_requests import cancel_job
    from trainmaster.wiring.core_services import deps

    states = {}
    for job_id in chosen:
        cancel_job(job_id, user_name(), deps())
        states[job_id] = find_job(store, job_id).job.state
        if form is Format.TABLE:
            say(f"{job_id}: {states[job_id]}")
    if form is Format.JSON:
        print_json([{"jobId": job_id, "state": state} for job_id, state in states.items()])
    elif not states:
        say("No job was running or waiting.")
