"""The commands that show stored jobs: `list`, `describe`, `compare`, `wait`, `status`, `ledger`.

They change nothing. `trainmaster jobs` is the group of all commands about jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainmaster.cli.command_table import HABITS, JOB_COMMANDS
from trainmaster.cli.installation import open_store
from trainmaster.cli.job_filters import ByLabel, ByState, ByUser, Mine, job_filter
from trainmaster.cli.job_output import (
    entry_json,
    entry_row,
    find_job,
    print_replicas,
    print_summary,
    print_trials,
)
from trainmaster.cli.lazy import LazyGroup
from trainmaster.cli.metrics import read_metrics
from trainmaster.cli.options import JobId, OutputFormat, complete_job_id
from trainmaster.cli.output import (
    ATTENTION,
    Format,
    complain,
    print_json,
    print_result,
    print_table,
    say,
    warn,
)
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.job_names import display_name
from trainmaster.core.model.owner import owner
from trainmaster.core.reporting.history import read_history
from trainmaster.cost.report import CostReport, CostSources, cost_report
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.ports import JobPosition, Store
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster.presentation.comparison import (
    chosen_ids,
    facts,
    shown_value,
    side_by_side,
    spec_differences,
)
from trainmaster.presentation.failing import Failing, failing_jobs, failing_of, with_failing
from trainmaster.presentation.job_view import console_link, job_view, timestamp
from trainmaster.presentation.machine_time import final_sentence, report_lines, report_view
from trainmaster.presentation.ml_units import Usage, usage
from trainmaster.presentation.progress import Progress, read_progress
from trainmaster.presentation.quiet import Quiet, read_quiet, read_quiet_jobs, with_quiet
from trainmaster.presentation.remedies import ending_of, headline
from trainmaster.settings import settings

if TYPE_CHECKING:
    from trainmaster.cli.recorded_goodput import RecordedGoodput


class JobCommands(LazyGroup):
    """The group `trainmaster jobs`."""

    lazy = JOB_COMMANDS
    habits = HABITS


app = typer.Typer(
    cls=JobCommands,
    help="List, describe, wait for, cancel and explain jobs: the same commands as above.",
    add_completion=False,
    no_args_is_help=True,
)


@app.command("list")
def list_jobs(
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="NUMBER", help="Largest number of jobs to list.")
    ] = 20,
    after: Annotated[
        str | None, typer.Option(help="List the jobs older than this one.", metavar="JOB")
    ] = None,
    state: ByState = None,
    user: ByUser = None,
    mine: Mine = False,
    label: ByLabel = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """List jobs, the newest first."""
    only = job_filter(state, user, mine, label)
    store = open_store()
    position = None
    if after is not None:
        start = find_job(store, after).job
        position = JobPosition(start.created_at, start.job_id)
    jobs = store.recent_jobs(limit + 1, position, only)
    has_more = len(jobs) > limit
    jobs = jobs[:limit]
    now = datetime.now(UTC)
    failing = failing_jobs(store, jobs, now, complain)
    quiet = _quiet_jobs(jobs, now)

    def view(job: Job) -> dict[str, Any]:
        plain_view = job_view(job, project=settings().log_project)
        return with_quiet(with_failing(plain_view, failing.get(job.job_id)), quiet.get(job.job_id))

    columns, rows = _list_table(jobs, failing, quiet, now)
    # The views are made one by one: only the JSON form needs them, and the name of the project.
    print_result(form, map(view, jobs), columns, rows)
    if has_more:
        complain(
            f"There are more jobs: add `--after {jobs[-1].job_id}` for the next ones, or `--limit`."
        )


def _list_table(
    jobs: Sequence[Job],
    failing: Mapping[str, Failing],
    quiet: Mapping[str, Quiet],
    now: datetime,
) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of a list of jobs. Columns that would be empty are left out.

    `failing`, `quiet`: notices by job id.
    """
    columns = ["job_id", "status", "created", "user"]
    rows = [[job.job_id, _status(job), timestamp(job.created_at), owner(job).words] for job in jobs]
    if any(display_name(job) for job in jobs):
        columns.insert(1, "name")
        for job, row in zip(jobs, rows, strict=True):
            row.insert(1, display_name(job))
    if failing or quiet:
        columns.append(ATTENTION)
        for job, row in zip(jobs, rows, strict=True):
            notices = []
            if job.job_id in failing:
                notices.append(failing[job.job_id].words)
            if job.job_id in quiet:
                notices.append(quiet[job.job_id].words(now))
            row.append("; ".join(notices))
    return columns, rows


def _quiet_jobs(jobs: Sequence[Job], now: datetime) -> Mapping[str, Quiet]:
    """Return the notices about programs that print nothing, by job id, with one call if any job
    runs.

    Empty if metrics are off or cannot be read: a list needs no role in Cloud Monitoring.
    """
    running = [job for job in jobs if job.state is JobState.RUNNING]
    if not running or settings().metrics == "off":
        return {}
    from trainmaster.gcp.retries import OPTIONAL_READ_S
    from trainmaster.wiring.metrics import metric_reader

    try:
        return read_quiet_jobs(metric_reader(OPTIONAL_READ_S), running, now)
    except (PermanentError, TemporaryError):
        return {}


def _status(job: Job) -> str:
    """Return the state; for a doubtful success, with the first note about it."""
    return f"{job.state}, but: {job.notes[0]}" if job.notes else job.state.value


@app.command()
def describe(
    job_id: JobId,
    goodput: Annotated[
        bool,
        typer.Option(
            "--goodput", help="Add what the program has recorded with ml_goodput_measurement."
        ),
    ] = False,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show a job as the API shows it, with its replicas and what was substituted."""
    store = open_store()
    state = find_job(store, job_id)
    report = read_report(store.ledger(job_id))
    failing = failing_of(state.job, state.replicas, datetime.now(UTC))
    view = _view(state, report, failing)
    quiet = read_metrics(read_quiet, state.job, "whether the program prints")
    view = with_quiet(view, quiet)
    progress = None
    if state.job.started_at:
        progress = read_metrics(read_progress, state.job, "how far the job is")
    if progress:
        view[EXTENSION]["progress"] = progress.view()
    recorded = _recorded_goodput(store, state.job) if goodput else None
    if recorded:
        view[EXTENSION]["recordedGoodput"] = recorded.view()
    if form is Format.JSON:
        print_json(view)
        return
    extension = view.pop(EXTENSION)
    print_summary(state.job, view, extension, _usage_of(state.job).words)
    _print_condition(failing, progress, quiet)
    _print_report(report)
    if recorded:
        say(f"recorded by the program: {recorded.words}")
    idle = idle_gpus_of(state.job)
    if idle:
        say(f"GPUs: {idle}")
    if state.job.tuning is not None:
        print_trials(state.job.tuning)
    else:
        print_replicas(extension["replicas"], job_has_ended=state.job.state.is_terminal)


def _print_condition(
    failing: Failing | None, progress: Progress | None, quiet: Quiet | None
) -> None:
    """Print what the program does now: whether it fails again and again, its progress, and how long
    it has printed nothing.
    """
    now = datetime.now(UTC)
    if failing:
        warn(failing.words)
        say(f"next: {failing.next_step}")
    if progress:
        say(f"progress: {progress.words(now)}")
    if quiet:
        warn(f"The program {quiet.words(now)}.")


def _print_report(report: CostReport | None) -> None:
    if report is not None:
        for line in report_lines(report):
            say(line)


@app.command()
def compare(
    job_ids: Annotated[
        list[str],
        typer.Argument(
            help="Ids of the jobs, at most 6.", metavar="JOB...", autocompletion=complete_job_id
        ),
    ],
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show jobs side by side: what became of them, and what differs between their specs."""
    store = open_store()
    jobs = [find_job(store, job_id).job for job_id in chosen_ids(job_ids)]
    outcomes = side_by_side([_facts(store, job) for job in jobs])
    differences = spec_differences(jobs)
    ids = [job.job_id for job in jobs]
    if form is Format.JSON:
        print_json({"jobs": ids, "facts": outcomes, "spec": differences})
        return
    for title, rows in (("", outcomes), ("spec", differences)):
        if rows:
            cells = [[name, *map(shown_value, values)] for name, values in rows.items()]
            print_table([title, *ids], cells)
    if not differences and len(jobs) > 1:
        say("The specs do not differ.")


def _facts(store: Store, job: Job) -> dict[str, str]:
    """Return what became of a job, as `compare` shows it: name of a fact → its value in words."""
    entries = store.ledger(job.job_id)
    progress = None
    if job.started_at:
        progress = read_metrics(read_progress, job, f"how far {job.job_id} is")
    return dict(facts(job, entries, read_report(entries), progress, datetime.now(UTC)))


@app.command("wait")
def wait_command(job_id: JobId, form: OutputFormat = Format.TABLE) -> None:
    """Wait until a job has ended. The exit status is 0 only if it SUCCEEDED."""
    from trainmaster.cli.wait import ProgressReader, exit_status, wait

    store = open_store()
    state = wait(job_id, store, progress=ProgressReader().words)
    ledger = store.ledger(job_id)
    report = read_report(ledger)
    if form is Format.JSON:
        print_json(_view(state, report))
    else:
        end = f"{job_id}: {state.job.state}"
        if state.job.error_message:
            ending = ending_of(state.job, ledger)
            end += f": {headline(state.job, ending)}"
        if state.job.notes:
            end += f", but: {'; '.join(state.job.notes)}"
        say(end)
        if state.job.state is JobState.FAILED:
            say(f"`trainmaster why {job_id}` explains it.")
        if report is not None and report.goodput.paid_s:
            say(final_sentence(report))
    raise typer.Exit(exit_status(state))


@app.command()
def status(
    job_id: Annotated[
        str | None,
        typer.Argument(
            help="Id of a job; none: the newest jobs.",
            metavar="[JOB]",
            autocompletion=complete_job_id,
        ),
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show the newest jobs, or one job as `describe` does."""
    if job_id is None:
        list_jobs(form=form)
    else:
        describe(job_id, form=form)


@app.command()
def ledger(job_id: JobId, form: OutputFormat = Format.TABLE) -> None:
    """Show every event of a job in the order of its commits, with the decision and its rule."""
    store = open_store()
    find_job(store, job_id)  # a job that does not exist is an error
    entries = store.ledger(job_id)
    columns = ["at", "event", "rule", "decision", "why"]
    print_result(form, map(entry_json, entries), columns, [entry_row(entry) for entry in entries])


def _view(
    state: State, report: CostReport | None, failing: Failing | None = None
) -> dict[str, Any]:
    """Return the job as the API shows it, with its machine time and its link to the console."""
    used = _usage_of(state.job)
    view = job_view(state.job, state.replicas, settings().log_project, used)
    view = with_failing(view, failing)
    if report is not None:
        view[EXTENSION] |= report_view(report)
    link = console_link(settings().console_address, state.job.job_id)
    if link:
        view[EXTENSION]["console"] = link
    return view


def read_report(entries: Sequence[LedgerEntry]) -> CostReport | None:
    """Return machine time and cost until now.

    None: it is a tuning job, or the job's history has expired.
    """
    from trainmaster.wiring.price_list import price_list
    from trainmaster.wiring.prices import checkpoint_times

    history = read_history(entries)
    sources = CostSources(
        price_list, checkpoint_times(), lambda job: machine_set_of(job, open_store())
    )
    return cost_report(history, entries, datetime.now(UTC), sources) if history else None


def _usage_of(job: Job) -> Usage:
    """Return what the job has used until now."""
    return usage(job, datetime.now(UTC), settings().ml_unit_price)


def _recorded_goodput(store: Store, job: Job) -> RecordedGoodput | None:
    """Return what the program recorded, and say why it is missing otherwise."""
    from trainmaster.cli.recorded_goodput import read_recorded_goodput
    from trainmaster.wiring.log_reader import log_entries

    try:
        return read_recorded_goodput(
            job, (entry.event for entry in store.ledger(job.job_id)), log_entries().page
        )
    except (PermanentError, TemporaryError) as error:
        complain(f"Cannot show the recorded goodput: {error}")
        return None


def idle_gpus_of(job: Job) -> str:
    """Return a sentence about idle GPUs; empty if there are none, or if metrics cannot be read."""
    has_gpus = any(group.accelerator for group in job.plan.groups)
    if job.state is not JobState.RUNNING or not has_gpus:
        return ""
    from trainmaster.presentation.utilization import read_idle_gpus

    return read_metrics(read_idle_gpus, job, "whether the job's GPUs are idle") or ""
