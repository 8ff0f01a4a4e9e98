"""`trainmaster jobs …`: what became of jobs, from the stored state."""

from __future__ import annotations

import contextlib
import getpass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cli.installation import choose
from cli.output import Format, print_json, print_table, replica_word, say
from shared.core.events import CancelRequested
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, State
from shared.core.model.tuning import Tuning
from shared.errors import PermanentError
from shared.ports import JobPlace, Store
from shared.presentation.job_view import EXTENSION, job_view, timestamp
from shared.presentation.ml_units import Usage, usage
from shared.settings import settings

app = typer.Typer(help="Jobs: list, describe, wait, cancel, and why each decision was taken.", no_args_is_help=True)


def known_ids(incomplete: str) -> list[str]:
    """For the shell, which completes what is typed: it must never see an error."""
    with contextlib.suppress(Exception):
        return [job.job_id for job in open_store().recent_jobs(100) if job.job_id.startswith(incomplete)]
    return []


JobId = Annotated[str, typer.Argument(help="Id of the job.", metavar="JOB", autocompletion=known_ids)]
Form = Annotated[Format, typer.Option("--format", help="How to print it.")]


def open_store() -> Store:
    """The state of the installation that is meant."""
    choose()
    from shared.wiring.core_services import store

    return store()


@app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many, the youngest first.")] = 20,
    form: Form = Format.TABLE,
) -> None:
    """List jobs, the youngest first."""
    jobs = submitted(open_store(), limit)
    if form is Format.JSON:
        print_json([job_view(job, project=settings().project) for job in jobs])
    else:
        print_table(
            ["job_id", "status", "created"], [[job.job_id, job.state, timestamp(job.created_at)] for job in jobs]
        )


@app.command()
def describe(job_id: JobId, form: Form = Format.TABLE) -> None:
    """Show a job as the service's API shows it, with its replicas and what was substituted."""
    state = find(open_store(), job_id)
    used = usage_of(state.job)
    view = _view(state)
    if form is Format.JSON:
        print_json(view)
        return
    extension = view.pop(EXTENSION)
    for name, value in view.items():
        if not isinstance(value, dict):
            say(f"{name}: {value}")
    if "labels" in view:
        say(f"labels: {', '.join(f'{key}={value}' for key, value in view['labels'].items())}")
    say(f"submitted: {extension['submitted']}")
    say(f"used so far: {used.words}" if not state.job.state.is_terminal else f"used: {used.words}")
    say(f"attempt: {extension['attempt']}   zone: {extension['zone']}   runtime: {extension['runtime']}")
    for name, budget in extension["budgets"].items():
        say(f"{name}: {budget['used']} of {budget['limit']}")
    for each in extension.get("substitutions", ()):
        say(f"substituted {each['field']}: {each['asked']} -> {each['given']} ({each['why']})")
    if state.job.tuning is not None:
        print_trials(state.job.tuning)
        return
    print_table(
        ["replica", "state", "subject", "vm", "machine", "restarts", "replaced", "collateral"],
        [
            [
                f"{each['taskType']} {each['taskIndex']}",
                replica_word(each["state"], has_ended=state.job.state.is_terminal),
                str(each["incarnation"]),
                each["vm"],
                str(each["vm_generation"]),
                f"{each['restarts']['used']} of {each['restarts']['limit']}",
                str(each["replaced"]),
                str(each["collateral"]),
            ]
            for each in extension["replicas"]
        ],
    )


def print_trials(tuning: Tuning) -> None:
    """The best first."""
    print_table(
        ["trial", "state", tuning.metric_tag, "step", *(parameter.name for parameter in tuning.parameters)],
        [
            [
                str(trial.number),
                trial.state,
                f"{trial.measurement.value:g}" if trial.measurement else "",
                str(trial.measurement.step) if trial.measurement else "",
                *trial.values,
            ]
            for trial in tuning.best_first()
        ],
    )


def submitted(store: Store, limit: int) -> list[Job]:
    """The youngest first; trials are shown with their tuning job."""
    found: list[Job] = []
    place: JobPlace | None = None
    while len(found) < limit:
        jobs = store.recent_jobs(limit, place)
        found += [job for job in jobs if job.trial_of is None]
        if len(jobs) < limit:
            break
        place = JobPlace(jobs[-1].created_at, jobs[-1].job_id)
    return found[:limit]


@app.command("wait")
def wait_for(job_id: JobId, form: Form = Format.TABLE) -> None:
    """Wait until a job has ended. Exit status 0 only if it SUCCEEDED."""
    from cli.wait import exit_status, wait

    ended = wait(job_id, open_store())
    if form is Format.JSON:
        print_json(_view(ended))
    else:
        say(f"{job_id}: {ended.job.state}" + (f": {ended.job.error_message}" if ended.job.error_message else ""))
    raise typer.Exit(exit_status(ended))


@app.command()
def cancel(job_id: JobId) -> None:
    """Cancel a job: its machines are given back. One that has ended stays as it is, which is no error."""
    store = open_store()
    find(store, job_id)
    from shared.flows.record import record
    from shared.wiring.core_services import deps

    record(job_id, CancelRequested(job_id, getpass.getuser(), datetime.now(UTC)), deps())
    say(f"{job_id}: {find(store, job_id).job.state}")


@app.command()
def ledger(job_id: JobId, form: Form = Format.TABLE) -> None:
    """Show every event of a job in the order of its commits: the rule, the decision, and why."""
    store = open_store()
    find(store, job_id)
    entries = store.ledger(job_id)
    if form is Format.JSON:
        print_json([_entry(entry) for entry in entries])
    else:
        print_table(
            ["at", "event", "rule", "decision", "why"],
            [_row(entry) for entry in entries],
        )


def _row(entry: LedgerEntry) -> list[str]:
    decision = entry.decision
    return [entry.at.strftime("%H:%M:%S.%f")[:-3], entry.key, str(int(decision.rule)), decision.kind, decision.text]


def find(store: Store, job_id: str) -> State:
    """The job and the replicas of its present attempt. Raises PermanentError, in one line, where there is none."""
    loaded = store.load_attempt(job_id)
    if loaded is None:
        raise PermanentError(f"there is no job {job_id}; `trainmaster jobs list` shows those there are")
    return loaded.state


def _view(state: State) -> dict[str, Any]:
    return job_view(state.job, state.replicas, settings().project, usage_of(state.job))


def usage_of(job: Job) -> Usage:
    """Until now."""
    return usage(job, datetime.now(UTC), settings().ml_unit_price)


def _entry(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "at": entry.at.isoformat(),
        "event": entry.key,
        "rule": int(entry.decision.rule),
        "decision": entry.decision.kind,
        "reason": entry.decision.reason.value,
        "text": entry.decision.text,
        "effects": list(entry.effects),
        "doneAt": entry.done_at and entry.done_at.isoformat(),
    }
