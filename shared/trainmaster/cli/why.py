"""`trainmaster why` explains the decisions about a job; `trainmaster replay` checks its ledger.

The ledger is the append-only record of a job's events, each with the decision about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_output import find_job, refusal_words, refused_submissions
from trainmaster.cli.losses import losses_in_log, unlogged_lines
from trainmaster.cli.metrics import read_metrics
from trainmaster.cli.options import JobId, OutputFormat, complete_job_id, parse_replica
from trainmaster.cli.output import Format, print_json, problems_text, say, warn
from trainmaster.core.decisions import Reason
from trainmaster.core.ledger import LedgerEntry, fold
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.explain import (
    budget_changes,
    differences,
    rules_passed_over,
    shown_entries,
)
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.reporting.submission_words import describe_submission
from trainmaster.core.rules.admission_queue import Wait, wait_of_job
from trainmaster.core.transitions.change import Effect
from trainmaster.errors import PermanentError
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.ports import Store
from trainmaster.presentation.explanation import explanation, unconfirmed
from trainmaster.presentation.failing import Failing, failing_of, with_failures
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.progress import read_progress
from trainmaster.presentation.quiet import read_quiet
from trainmaster.presentation.reasons import reason_lines, reason_view
from trainmaster.presentation.remedies import ending_of, headline
from trainmaster.settings import settings

_SIMILAR: Final = 0.5
"""Similarity, from 0 to 1, from which a misspelled reason is taken for another one."""


def why(
    job_id: Annotated[
        str | None,
        typer.Argument(help="Id of the job.", metavar="JOB", autocompletion=complete_job_id),
    ] = None,
    replica: Annotated[
        str | None, typer.Argument(help="Only this replica: worker-1.", metavar="REPLICA")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Include ignored events, every capacity error, and rules that did not apply.",
        ),
    ] = False,
    reason: Annotated[
        str | None,
        typer.Option(help="Explain this reason of decisions, without a job.", metavar="NAME"),
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Explain a job: what happened, which rule decided and why, and what comes next."""
    if job_id is None:
        _explain_reason(reason, form)
        return
    store = open_store()
    state = find_job(store, job_id)
    replica_id = parse_replica(replica, state.job) if replica else None
    ledger = store.ledger(job_id)
    if form is Format.JSON:
        _print_as_json(store, state, ledger, replica_id, everything=everything)
        return
    ending = ending_of(state.job, ledger)
    if replica_id is None:
        say(f"{state.job.job_id} was submitted {describe_submission(state.job)}.")
        for refused in refused_submissions(store, job_id):
            warn(f"Another submission of this job id: {refusal_words(refused)}.")
        if state.job.error_message:
            say(f"{state.job.state}: {headline(state.job, ending)}")
    for entry, omitted in shown_entries(ledger, replica_id, everything=everything):
        if omitted:
            say(f"            {omitted} similar decisions are omitted (--all shows them)")
        _print_entry(entry, with_rules_passed_over=everything)
    say("")
    replicas = [entry for entry in state.replicas if replica_id in (None, entry.replica_id)]
    failing = failing_of(state.job, replicas, datetime.now(UTC))
    _print_situation(state, failing)
    _print_next_steps(store, state, replicas, ledger, failing)
    for sentence in _losses(state.job, ledger, replica_id):
        warn(sentence)
    if ending:
        say(f"What to do: {ending.advice}")


def _print_as_json(
    store: Store,
    state: State,
    ledger: Sequence[LedgerEntry],
    replica_id: ReplicaId | None,
    *,
    everything: bool,
) -> None:
    view = explanation(
        state,
        ledger,
        store.pending_keys(state.job.job_id),
        datetime.now(UTC),
        _wait_of(store, state.job),
        replica_id=replica_id,
        everything=everything,
    )
    progress = None
    if state.job.started_at is not None:
        progress = read_metrics(read_progress, state.job, "how far the job is")
    if progress:
        view["progress"] = progress.view()
    quiet = read_metrics(read_quiet, state.job, "whether the program prints")
    if quiet:
        view["quiet"] = quiet.view()
    losses = _losses(state.job, ledger, replica_id)
    if losses:
        view["losses"] = losses
    refused = refused_submissions(store, state.job.job_id)
    if refused:
        view["refusedSubmissions"] = [
            {"source": entry.source, "time": timestamp(entry.at), "problems": list(entry.problems)}
            for entry in refused
        ]
    print_json(view)


def _losses(job: Job, ledger: Sequence[LedgerEntry], replica_id: ReplicaId | None) -> Sequence[str]:
    """Return a sentence for each known loss of lines, measurements and resource metrics.

    Empty if `replica_id` is set: losses are not known by replica.
    """
    return () if replica_id else (*unlogged_lines(ledger), *losses_in_log(job))


def _wait_of(store: Store, job: Job) -> Wait | None:
    """Return why the job is not admitted; None if it waits for nothing."""
    limits = settings().limits if job.state is JobState.QUEUED else {}
    return wait_of_job(job, store.queue, limits)


def _print_situation(state: State, failing: Failing | None) -> None:
    """Print the state of the job and how its program does. `failing`: set if it keeps failing."""
    now = datetime.now(UTC)
    notes = f", but: {'; '.join(state.job.notes)}" if state.job.notes else ""
    state_words = f"Now: {state.job.state}{notes}."
    if state.job.error_message:
        state_words += f" `trainmaster describe {state.job.job_id}` shows its error message."
    say(state_words)
    if failing:
        warn(f"{failing.words[0].upper()}{failing.words[1:]}.")
    progress = None
    if state.job.state is JobState.RUNNING:
        progress = read_metrics(read_progress, state.job, "how far the job is")
    if progress:
        say(f"Progress: {progress.words(now)}.")
    quiet = read_metrics(read_quiet, state.job, "whether the program prints")
    if quiet:
        warn(f"The program {quiet.words(now)}.")


def _explain_reason(name: str | None, form: Format) -> None:
    if name is None:
        raise PermanentError("no job is given: name a job, or a reason with --reason NAME")
    word = name.strip().lower().replace("-", "_")
    if word not in set(Reason):
        nearest = get_close_matches(word, list(Reason), n=1, cutoff=_SIMILAR)
        hint = f"did you mean {nearest[0]}?" if nearest else "the page Reasons lists them"
        raise PermanentError(f"--reason: {name!r} is not a reason of decisions; {hint}")
    reason = Reason(word)
    if form is Format.JSON:
        print_json(reason_view(reason))
    else:
        say(reason_lines(reason))


def _print_next_steps(
    store: Store,
    state: State,
    replicas: Sequence[Replica],
    ledger: Sequence[LedgerEntry],
    failing: Failing | None,
) -> None:
    """Print what the job waits for, and which effects of decisions are not confirmed.

    `replicas`: those to look at.
    """
    wait = _wait_of(store, state.job)
    for sentence in with_failures(
        failing, next_steps(state.job, replicas, ledger, wait, state.machine_set)
    ):
        say(f"Next: {sentence}")
    pending = unconfirmed(state, store.pending_keys(state.job.job_id))
    if pending:
        say(
            f"Not confirmed yet: the effects of {', '.join(pending)}. The sweep checks them again"
            " every minute."
        )


def replay(
    job_id: JobId,
    policy: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Show what another exit policy would have decided: a file with `exitPolicy`, as in"
            " a job file.",
        ),
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Rebuild a job's state from its ledger and compare it with the stored state. Exit status 1 if
    they differ.
    """
    store = open_store()
    state = find_job(store, job_id)
    entries = store.ledger(job_id)
    if policy is not None:
        _compare_policy(entries, policy, form)
        return
    folded = fold(entries)
    if form is Format.JSON:
        print_json(_replay_view(state, folded, len(entries)))
        raise typer.Exit(int(folded != state))
    if folded != state:
        for name, stored_value, folded_value in _differences(state, folded):
            say(f"{name}: stored {stored_value}, from the ledger {folded_value}")
        raise PermanentError(f"the ledger of {job_id} does not lead to the stored state")
    summary = f"{state.job.state}, attempt {state.job.attempt}"
    say(f"{job_id}: {len(entries)} ledger entries lead to exactly the stored state ({summary})")


def _replay_view(state: State, folded: State | None, entries: int) -> dict[str, object]:
    return {
        "jobId": state.job.job_id,
        "ledgerEntries": entries,
        "equal": folded == state,
        "differences": [
            {"of": name, "stored": str(stored_value), "fromLedger": str(folded_value)}
            for name, stored_value, folded_value in _differences(state, folded)
        ],
    }


def _compare_policy(entries: tuple[LedgerEntry, ...], path: Path, form: Format) -> None:
    """Print which decisions another exit policy would have changed."""
    from trainmaster.jobspec.fields.exit_policy import read_exit_policy
    from trainmaster.jobspec.reading.parse_document import parse_document

    try:
        policy = read_exit_policy(parse_document(path.read_bytes(), path.name))
    except InvalidJob as invalid:
        raise PermanentError(f"{path} cannot be read:{problems_text(invalid)}") from None
    changed = differences(entries, policy)
    if form is Format.JSON:
        print_json(
            [
                {
                    "entry": difference.entry.key,
                    "decided": difference.entry.decision.text,
                    "wouldBe": difference.would_be.text,
                }
                for difference in changed
            ]
        )
        return
    for difference in changed:
        actual = difference.entry.decision
        say(f"{difference.entry.key}: {actual.action.kind} ({actual.text})")
        say(f"    would be {difference.would_be.action.kind}: {difference.would_be.text}")
    say(f"{len(changed)} of {len(entries)} decisions would have been different")


def _print_entry(entry: LedgerEntry, *, with_rules_passed_over: bool) -> None:
    rule = f"  [rule {int(entry.decision.rule)}]" if entry.decision.rule else ""
    say(f"{entry.at:%H:%M:%S}  {entry.decision.text}{rule}")
    says_what_event_means = entry.decision.rule.is_judgement
    if with_rules_passed_over and says_what_event_means:
        for skipped, condition in rules_passed_over(entry):
            say(f"            not rule {int(skipped)} ({condition})")
    for name, before, after in budget_changes(entry):
        say(f"            {name.replace('_', ' ')}: {before} -> {after}")
    requests = [effect for effect in entry.effects if effect is not Effect.NOTIFY]
    if requests:
        confirmed = (
            f"confirmed at {entry.done_at:%H:%M:%S}" if entry.done_at else "not confirmed yet"
        )
        say(f"            effects: {', '.join(requests)}, {confirmed}")
    if entry.is_notification_pending:
        say("            notification: not published yet")


def _differences(stored: State, folded: State | None) -> list[tuple[str, object, object]]:
    """Return name, stored value and folded value of the job and the replicas that differ."""
    if folded is None:
        return [("job", stored.job.state, None)]
    result: list[tuple[str, object, object]] = []
    if stored.job != folded.job:
        result.append(("job", stored.job, folded.job))
    by_key = {replica.key: replica for replica in folded.replicas}
    changed = (replica for replica in stored.replicas if by_key.get(replica.key) != replica)
    return result + [(replica.key, replica, by_key.get(replica.key)) for replica in changed]
