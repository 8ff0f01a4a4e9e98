"""Charges that a loss explains, although they were judged before the loss or at the same time (rule 7).

Exits and losses may be judged in any order, and two may be loaded before either is committed. Every loss is followed by
a provisioning round, which sees the whole attempt. It refunds each charge that a loss explains, by a `ChargeExplained`
event, before the replica can fail again: that round also sends the directive for its next incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trainmaster.core.actions import RefundCharge
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import ChargeExplained
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import PastIncarnation, Replica
from trainmaster.core.rules.causes import Causes


def explained_charges(state: State) -> Iterator[tuple[Replica, PastIncarnation, Replica]]:
    """Return the charges that are explained: the replica, the incarnation whose exit was charged, and the cause.

    `state` holds the whole attempt.
    """
    if state.job.state.is_terminal:
        return
    causes = Causes(state)
    for replica in state.replicas:
        for ended in replica.past:
            if ended.is_charged and (cause := causes.find(replica, ended)):
                yield replica, ended, cause


def judge_explained_charge(state: State, event: ChargeExplained, now: datetime) -> Decision:
    """Refund the charge, unless it was refunded before."""
    replica = state.find(event.attempt, event.replica_id)
    if event.attempt != state.job.attempt or replica is None:
        return stale(Reason.OLD_ATTEMPT, f"The job was rerun after attempt {event.attempt}.")
    if not any(ended.is_charged and ended.number == event.incarnation for ended in replica.past):
        return stale(Reason.NOTHING_TO_DO, "The restart was refunded before.")
    text = (
        f"The loss of {event.cause.words} explains the earlier exit of {event.replica_id.words}: that restart is "
        "refunded."
    )
    action = RefundCharge(replica.key, event.incarnation, f"{event.attempt}-{event.cause}")
    return Decision(Rule.COLLATERAL, Reason.CHARGE_EXPLAINED, text, action)
