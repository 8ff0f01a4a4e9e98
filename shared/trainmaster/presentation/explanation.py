"""The explanation of a job as JSON: what was decided, by which rule, and what comes next.

The API returns it for `:explain`, and `trainmaster why --json` prints it. Its source is the ledger,
which has one entry for each event of the job, with the decision about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import State
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.explain import budget_changes, replica_of, shown_entries
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.rules.admission_queue import Wait
from trainmaster.presentation.failing import failing_of, with_failures
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.remedies import ending_of, headline

Json = dict[str, Any]


def explanation(
    state: State,
    entries: Sequence[LedgerEntry],
    pending: Sequence[str],
    now: datetime,
    wait: Wait | None = None,
    *,
    replica_id: ReplicaId | None = None,
    everything: bool = False,
) -> Json:
    """Return the explanation of a job.

    `state`: the job and the replicas of its current attempt. `entries`: its ledger. `pending`: keys
    of the entries whose effects, such as a request for VMs, are not confirmed. `wait`: why the job
    is not admitted. `replica_id`: the only replica whose decisions are shown. Without `everything`,
    ignored events and long series of capacity errors are left out, and each round has one decision,
    as `trainmaster why` leaves them out.
    """
    shown = shown_entries(entries, replica_id, everything=everything)
    ending = ending_of(state.job, entries)
    # The failures in a row of a job that goes on in spite of them
    failing = failing_of(state.job, state.replicas, now)
    steps = next_steps(state.job, state.replicas, entries, wait, state.machine_set)
    shown_state: Json = {"state": state.job.state.value}
    if state.job.notes:
        shown_state["notes"] = list(state.job.notes)
    if state.job.error_message:
        shown_state["error"] = headline(state.job, ending)
    if ending:
        shown_state |= ending.view()
    if failing:
        shown_state["failing"] = failing.view()
    return shown_state | {
        "decisions": [_decision(entry, omitted) for entry, omitted in shown],
        "nextSteps": list(with_failures(failing, steps)),
        "unconfirmedEffects": unconfirmed(state, pending),
    }


def unconfirmed(state: State, pending: Sequence[str]) -> list[str]:
    """Return the entries whose effects are late. One of a job whose machines are kept is not: it
    lets the sweep look after them.
    """
    return [] if state.keeps_machines else list(pending)


def _decision(entry: LedgerEntry, omitted: int) -> Json:
    """Return an entry; `omitted`: similar ones that were left out before it."""
    decision: Json = {
        "eventKey": entry.key,
        "time": timestamp(entry.at),
        "text": entry.decision.text,
        "action": entry.decision.action.kind,
        "attempt": entry.after.attempt,
    }
    if entry.decision.rule:
        decision["rule"] = int(entry.decision.rule)
    replica_id = replica_of(entry)
    if replica_id:
        decision["replica"] = str(replica_id)
    changes = budget_changes(entry)
    if changes:
        decision["charges"] = {
            name: {"before": before, "after": after} for name, before, after in changes
        }
    if omitted:
        decision["omittedDecisions"] = omitted
    return decision
