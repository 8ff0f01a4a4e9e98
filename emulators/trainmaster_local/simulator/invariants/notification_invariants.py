"""Invariant of the notifications: subscribers learn of every transition of a job, and of nothing
else.

The transitions are found by folding the ledger step by step, independently of the effects that it
stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from trainmaster.core.ledger import LedgerEntry, replay
from trainmaster.core.model.job import State
from trainmaster_local.simulator.invariants import ViolationError


def check_notifications(
    job_id: str, messages: Sequence[bytes], ledger: Sequence[LedgerEntry]
) -> None:
    """Check the messages about one job when its history is over.

    Repeated messages must be equal.
    """
    received: dict[str, tuple[str, int]] = {}
    for message in map(json.loads, messages):
        if message["job_id"] != job_id:
            continue
        content = (message["state"], message["attempt"])
        if received.setdefault(message["id"], content) != content:
            raise ViolationError(f"notifications: {message['id']} was sent with different contents")
    expected = dict(_transitions(job_id, ledger))
    if received != expected:
        raise ViolationError(
            f"notifications: subscribers got {received}, and the job's transitions are {expected}"
        )


def _transitions(
    job_id: str, ledger: Sequence[LedgerEntry]
) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the id of each transition, and the job's state and attempt after it."""
    state: State | None = None
    for entry in ledger:
        before = state
        state = replay(state, entry)
        if state is None:
            continue
        after = (state.job.state.value, state.job.attempt)
        if before is None or (before.job.state.value, before.job.attempt) != after:
            yield f"{job_id}/{entry.key}", after
