"""Jobs, their replicas, trials and ledgers, as tables and lines on a terminal.

A ledger is a job's record of events, each with the decision about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from trainmaster.cli.output import print_table, replica_state_word, say
from trainmaster.cli.usage_errors import is_replica_name
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.tuning import Trial, Tuning
from trainmaster.errors import PermanentError
from trainmaster.jobspec.fields.job_id import is_stored_id, job_id_from
from trainmaster.ports import Incidents, Rejection, Store
from trainmaster.presentation.similar_jobs import similar_job

REFUSALS_READ: Final = 100
"""Number of the latest refusals, of all jobs, in which those of one job are searched."""


def print_summary(job: Job, view: dict[str, Any], extension: dict[str, Any], used: str) -> None:
    """Print the fields of a job. `used`: what it has used until now, in words."""
    for name, value in view.items():
        if not isinstance(value, dict):
            say(f"{name}: {value}")
    if "labels" in view:
        say(f"labels: {', '.join(f'{key}={value}' for key, value in view['labels'].items())}")
    if job.notes:
        say(f"but: {'; '.join(job.notes)}")
    say(f"submitted: {extension['submitted']}")
    say(f"{'used' if job.state.is_terminal else 'used so far'}: {used}")
    if "console" in extension:
        say(f"console: {extension['console']}")
    say(
        f"attempt: {extension['attempt']}   zone: {extension['zone']}   runtime:"
        f" {extension['runtime']}"
    )
    for name, budget in extension["budgets"].items():
        say(f"{name}: {budget['used']} of {budget['limit']}")
    for entry in extension.get("substitutions", ()):
        if entry["requested"] == entry["replacement"]:
            say(f"note on {entry['field']}: {entry['requested']} ({entry['reason']})")
        else:
            say(
                f"substituted {entry['field']}: {entry['requested']} -> {entry['replacement']}"
                f" ({entry['reason']})"
            )


def print_replicas(replicas: list[dict[str, Any]], *, job_has_ended: bool) -> None:
    """Print a table of the replicas, as the API shows them."""
    print_table(
        ["replica", "state", "incarnation", "vm", "vm generation", "restarts", "replaced"],
        [
            [
                f"{replica['taskType']} {replica['taskIndex']}",
                replica_state_word(replica["state"], job_has_ended=job_has_ended),
                str(replica["incarnation"]),
                replica["vm"],
                str(replica["vmGeneration"]),
                f"{replica['restarts']['used']} of {replica['restarts']['limit']}",
                str(replica["replaced"]),
            ]
            for replica in replicas
        ],
    )


def print_trials(tuning: Tuning) -> None:
    """Print a table of the trials, the best first."""
    print_table(*trial_table(tuning, tuning.best_first()))


def trial_table(tuning: Tuning, trials: Iterable[Trial]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of trials."""
    columns = [
        "trial",
        "state",
        tuning.metric_tag,
        "step",
        *(parameter.name for parameter in tuning.parameters),
    ]
    rows = []
    for trial in trials:
        value = f"{trial.latest.value:g}" if trial.latest else ""
        step = str(trial.latest.step) if trial.latest else ""
        rows.append([str(trial.number), trial.state, value, step, *trial.values])
    return columns, rows


def entry_row(entry: LedgerEntry) -> list[str]:
    """Return a ledger entry as a row of a table."""
    decision = entry.decision
    at = entry.at.strftime("%H:%M:%S.%f")[:-3]  # to the millisecond
    return [at, entry.key, str(int(decision.rule)), decision.action.kind, decision.text]


def entry_json(entry: LedgerEntry) -> dict[str, Any]:
    """Return a ledger entry as JSON."""
    return {
        "at": entry.at.isoformat(),
        "event": entry.key,
        "rule": int(entry.decision.rule),
        "decision": entry.decision.action.kind,
        "reason": entry.decision.reason.value,
        "text": entry.decision.text,
        "effects": list(entry.effects),
        "doneAt": entry.done_at and entry.done_at.isoformat(),
        "notifiedAt": entry.notified_at and entry.notified_at.isoformat(),
    }


def find_job(store: Store, job_id: str) -> State:
    """Return the job and the replicas of its current attempt.

    Raises PermanentError if there is no such job. The error names the refusal of its submission, if
    there was one, because the sender of an uploaded file gets no message.
    """
    if not job_id:
        raise PermanentError("the job id is empty. `trainmaster list` shows all jobs")
    if is_stored_id(job_id):
        loaded = store.load_attempt(job_id)
        if loaded is not None:
            return loaded.state
    refused = refused_submissions(store, job_id)
    if refused:
        raise PermanentError(_unknown(job_id, f": {refusal_words(refused[0])}."))
    raise PermanentError(_unknown(job_id, _meant(store, job_id)))


def _meant(store: Store, job_id: str) -> str:
    """Return what an id that no job has probably means, as the rest of a sentence after the id."""
    if is_replica_name(job_id):
        return f": {job_id} is the name of a replica, which comes after the job's id."
    similar = similar_job(store, job_id)
    return f"; did you mean {similar}?" if similar else "."


def _unknown(job_id: str, reason: str) -> str:
    return f"there is no job {job_id}{reason} `trainmaster list` shows all jobs"


def refused_submissions(store: Incidents, job_id: str) -> list[Rejection]:
    """Return the refused submissions that name the job, the newest first, among the latest ones.

    An uploaded file that names no job is found by its own name, with or without its folder and
    ending.
    """
    return [found for found in store.rejections(REFUSALS_READ) if _names(found, job_id)]


def _names(refused: Rejection, job_id: str) -> bool:
    if refused.job_id is not None:
        return refused.job_id == job_id
    uri, _, _generation = refused.source.rpartition("#")
    return bool(uri) and job_id_from(uri, suffix="") == job_id_from(job_id, suffix="")


def refusal_words(refused: Rejection) -> str:
    """Return `gs://bucket/jobs/digits.yaml#7 was refused at 2026-11-21 03:00 UTC: Field: …`."""
    problems = " ".join(refused.problems).rstrip(".")
    return f"{refused.source} was refused at {refused.at:%Y-%m-%d %H:%M} UTC: {problems}"
