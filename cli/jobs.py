"""`trainmaster jobs …`: what became of jobs, from the stored state."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.output import Format, print_json, print_table, say
from cli.target import choose
from shared.core.jobs import State
from shared.core.ledger import LedgerEntry
from shared.errors import PermanentError
from shared.jobview import EXTENSION, job_view, timestamp
from shared.ports import Store

app = typer.Typer(help="Jobs: list, describe, and why each decision was taken.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(help="Id of the job.", metavar="JOB")]
Form = Annotated[Format, typer.Option("--format", help="How to print it.")]


def open_store() -> Store:
    """The state of the installation that is meant."""
    choose()
    from shared.wiring.light import store

    return store()


@app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many, the youngest first.")] = 20,
    form: Form = Format.TABLE,
) -> None:
    """List jobs, the youngest first."""
    jobs = open_store().recent_jobs(limit)
    if form is Format.JSON:
        print_json([job_view(job) for job in jobs])
    else:
        print_table(
            ["job_id", "status", "created"], [[job.job_id, job.state, timestamp(job.created_at)] for job in jobs]
        )


@app.command()
def describe(job_id: JobId, form: Form = Format.TABLE) -> None:
    """Show a job as the service's API shows it, with its replicas and what was substituted."""
    view = _view(find(open_store(), job_id))
    if form is Format.JSON:
        print_json(view)
        return
    extension = view.pop(EXTENSION)
    for name, value in view.items():
        if name != "trainingInput":
            say(f"{name}: {value}")
    say(f"attempt: {extension['attempt']}   zone: {extension['zone']}   runtime: {extension['runtime']}")
    for name, budget in extension["budgets"].items():
        say(f"{name}: {budget['used']} of {budget['limit']}")
    for each in extension.get("substitutions", ()):
        say(f"substituted {each['field']}: {each['asked']} -> {each['given']} ({each['why']})")
    print_table(
        ["replica", "state", "life", "vm", "machine", "restarts", "replaced", "collateral"],
        [
            [
                f"{each['taskType']} {each['taskIndex']}",
                each["state"],
                str(each["incarnation"]),
                each["vm"],
                str(each["machine"]),
                f"{each['restarts']['used']} of {each['restarts']['limit']}",
                str(each["replaced"]),
                str(each["collateral"]),
            ]
            for each in extension["replicas"]
        ],
    )


@app.command()
def ledger(job_id: JobId, form: Form = Format.TABLE) -> None:
    """Show every event of a job in the order of its commits: the rule, the verdict, and why."""
    store = open_store()
    find(store, job_id)
    entries = store.ledger(job_id)
    if form is Format.JSON:
        print_json([_entry(entry) for entry in entries])
    else:
        print_table(
            ["at", "event", "rule", "verdict", "why"],
            [_row(entry) for entry in entries],
        )


def _row(entry: LedgerEntry) -> list[str]:
    verdict = entry.verdict
    return [entry.at.strftime("%H:%M:%S.%f")[:-3], entry.key, str(int(verdict.rule)), verdict.kind, verdict.text]


def find(store: Store, job_id: str) -> State:
    """The job and the replicas of its present attempt. Raises PermanentError, in one line, where there is none."""
    loaded = store.load_attempt(job_id)
    if loaded is None:
        raise PermanentError(f"there is no job {job_id}; `trainmaster jobs list` shows those there are")
    return loaded.state


def _view(state: State) -> dict[str, Any]:
    return job_view(state.job, state.replicas)


def _entry(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "at": entry.at.isoformat(),
        "event": entry.key,
        "rule": int(entry.verdict.rule),
        "verdict": entry.verdict.kind,
        "reason": entry.verdict.reason.value,
        "text": entry.verdict.text,
        "effects": list(entry.effects),
        "doneAt": entry.done_at and entry.done_at.isoformat(),
    }
