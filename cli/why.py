"""`trainmaster why` and `trainmaster replay`: what was decided and by which rule, and whether it all adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.jobs import JobId, find, open_store
from cli.output import say
from shared.core.decisions import Rule
from shared.core.ledger import LedgerEntry, fold
from shared.core.model.job import State
from shared.core.model.replica_id import ReplicaId
from shared.core.reporting.explain import concerns, condensed, differences, is_news, passed_over, what_comes_next
from shared.core.reporting.submission_origin import came
from shared.errors import PermanentError
from shared.jobspec import InvalidJob, parse_document, read_exit_policy


def why(
    job_id: JobId,
    replica: Annotated[str | None, typer.Argument(help="Only this one, such as worker-1.", metavar="REPLICA")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what was ignored, and every capacity error of a long search.")
    ] = False,
) -> None:
    """Tell a job's story: what happened, which rule decided, why not another, and what comes next."""
    store = open_store()
    state = find(store, job_id)
    replica_id = _seat(replica, state) if replica else None
    about = [entry for entry in store.ledger(job_id) if replica_id is None or concerns(entry, replica_id)]
    news = [entry for entry in about if is_news(entry)]
    told = tuple((entry, 0) for entry in about) if everything else condensed(news)
    if replica_id is None:
        say(f"{state.job.job_id} was submitted {came(state.job)}.")
    for entry, left_out in told:
        if left_out:
            say(f"            {left_out} more refusals like these (--all tells them), and then")
        _tell(entry)
    say("")
    say(f"Now: {state.job.state}" + (f": {state.job.error_message}" if state.job.error_message else "") + ".")
    shown = [each for each in state.replicas if replica_id is None or each.replica_id == replica_id]
    for sentence in what_comes_next(state.job, shown if replica_id else state.replicas):
        say(f"Next: {sentence}")
    pending = store.pending(job_id)
    if pending:
        say(f"Not yet seen done: what is desired after {', '.join(pending)}; each minute's sweep asks for it again.")


def replay(
    job_id: JobId,
    policy: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="An exit policy: what would it have decided?")
    ] = None,
) -> None:
    """Fold a job's ledger through the code again and compare with what is stored. Exit status 1 if they differ."""
    store = open_store()
    state = find(store, job_id)
    entries = store.ledger(job_id)
    if policy is not None:
        _compare_policy(entries, policy)
        return
    again = fold(entries)
    if again != state:
        for name, stored, folded in _unlike(state, again):
            say(f"{name}: stored {stored}, folded {folded}")
        raise PermanentError(f"the ledger of {job_id} does not lead to what is stored")
    where = f"{state.job.state}, attempt {state.job.attempt}"
    say(f"{job_id}: {len(entries)} entries lead to exactly what is stored ({where})")


def _compare_policy(entries: tuple[LedgerEntry, ...], path: Path) -> None:
    try:
        desired = read_exit_policy(parse_document(path.read_bytes(), path.name))
    except InvalidJob as invalid:
        raise PermanentError(f"{path}: {invalid}") from None
    found = differences(entries, desired)
    for each in found:
        say(f"{each.entry.key}: {each.entry.decision.kind} ({each.entry.decision.text})")
        say(f"    would be {each.would_be.kind}: {each.would_be.text}")
    say(f"{len(found)} of {len(entries)} decisions would have been different")


def _tell(entry: LedgerEntry) -> None:
    rule = f"  [rule {int(entry.decision.rule)}]" if entry.decision.rule else ""
    say(f"{entry.at:%H:%M:%S}  {entry.decision.text}{rule}")
    if entry.decision.rule > Rule.STALE:
        for passed, takes in passed_over(entry):
            say(f"            not rule {int(passed)} ({takes})")
    before, after = entry.before, entry.after
    for name in ("restarts_used", "reruns_used", "internal_used", "replaced", "collateral"):
        if getattr(before, name) != getattr(after, name) and after.attempt == before.attempt:
            say(f"            {name.replace('_', ' ')}: {getattr(before, name)} -> {getattr(after, name)}")
    if entry.effects:
        seen = f"seen done at {entry.done_at:%H:%M:%S}" if entry.done_at else "not yet seen done"
        say(f"            desired: {', '.join(entry.effects)}, {seen}")


def _seat(text: str, state: State) -> ReplicaId:
    try:
        replica_id = ReplicaId.parse(text.replace(" ", "-"))
    except ValueError:
        replica_id = None
    if replica_id not in state.job.plan.replica_ids:
        known = ", ".join(str(each) for each in state.job.plan.replica_ids[:20])
        raise PermanentError(f"{state.job.job_id} has no replica {text}; it has {known}")
    return replica_id


def _unlike(stored: State, folded: State | None) -> list[tuple[str, object, object]]:
    if folded is None:
        return [("job", stored.job.state, None)]
    found: list[tuple[str, object, object]] = []
    if stored.job != folded.job:
        found.append(("job", stored.job, folded.job))
    ours = {replica.key: replica for replica in folded.replicas}
    found += [(each.key, each, ours.get(each.key)) for each in stored.replicas if ours.get(each.key) != each]
    return found
