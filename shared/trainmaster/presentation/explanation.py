"""The explanation of a job as JSON: what was decided, by which rule, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainmaster.core.events import MemberMissing, ReplicaEvent
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import State
from trainmaster.core.reporting.explain import condense, next_steps, one_per_round
from trainmaster.core.rules.admission_queue import Wait
from trainmaster.presentation.job_view import timestamp

Json = dict[str, Any]


def explanation(state: State, entries: Sequence[LedgerEntry], pending: Sequence[str], wait: Wait | None = None) -> Json:
    """Return the explanation of a job.

    `state`: the job and the replicas of its current attempt. `entries`: its ledger. `pending`: keys of the entries
    whose effects are not confirmed. `wait`: why the job is not admitted. Ignored events and long series of capacity
    errors are left out, and each round has one decision, as `trainmaster why` leaves them out.
    """
    condensed = condense(one_per_round(entries))
    return {
        "state": state.job.state.value,
        "decisions": [_decision(entry, omitted) for entry, omitted in condensed],
        "nextSteps": list(next_steps(state.job, state.replicas, entries, wait)),
        "unconfirmedEffects": list(pending),
    }


def _decision(entry: LedgerEntry, omitted: int) -> Json:
    decision: Json = {
        "eventKey": entry.key,
        "time": timestamp(entry.at),
        "text": entry.decision.text,
        "action": entry.decision.action.kind,
        "attempt": entry.after.attempt,
    }
    if entry.decision.rule:
        decision["rule"] = int(entry.decision.rule)
    if replica := _replica_of(entry):
        decision["replica"] = replica
    if charges := _charges(entry):
        decision["charges"] = charges
    if omitted:
        decision["omittedCapacityErrors"] = omitted
    return decision


def _replica_of(entry: LedgerEntry) -> str:
    """Return `worker-0` for an event about one replica, else an empty string."""
    if isinstance(entry.event, MemberMissing):
        return str(entry.event.replica_id)
    return str(entry.event.subject.replica_id) if isinstance(entry.event, ReplicaEvent) else ""


def _charges(entry: LedgerEntry) -> Json:
    """Return the budgets that the decision changed, each with its use before and after."""
    if entry.before.attempt != entry.after.attempt:
        return {}
    before, after = asdict(entry.before), asdict(entry.after)
    return {name: {"before": before[name], "after": after[name]} for name in before if before[name] != after[name]}
