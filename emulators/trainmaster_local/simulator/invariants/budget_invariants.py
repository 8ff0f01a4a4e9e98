"""I3: budgets are recounted from the decisions in the ledger, and compared with what the rules have
stored.

A *budget* is a limit of how often something may be repeated, with what was used of it: restarts of
one replica's program, and reruns of the whole job, each a new attempt. A rule *charges* the budget
when it decides a restart or a rerun for which the user's program is responsible; others are free.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trainmaster.core.actions import (
    Action,
    BeginRound,
    Budget,
    ContinueProvisioning,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    StopRound,
)
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX, State
from trainmaster_local.simulator.invariants import ViolationError


@dataclass(slots=True)
class BudgetCount:
    """The budgets of one job, counted from its decisions."""

    _restarts: Counter[str] = field(default_factory=Counter)
    """Charged restarts, by the key of the replica."""
    _replaced: Counter[str] = field(default_factory=Counter)
    """VMs that were replaced, by the key of the replica."""
    _reruns: int = 0
    """Charged reruns."""
    _free_reruns: int = 0
    """Reruns that cost nothing."""

    def add(self, action: Action) -> None:
        """Count the charges of one more action."""
        charged = action.replacement if isinstance(action, StopRound) else action
        if isinstance(charged, RestartReplica | ReplaceVm | BeginRound) and charged.replica:
            self._restarts[charged.replica] += charged.charge is Budget.RESTARTS
            # Earlier restarts that losses of VMs at the same time explain no longer count.
            excused = charged.excused if isinstance(charged, RestartReplica) else ()
            self._restarts[charged.replica] -= len(excused)
            self._replaced[charged.replica] += isinstance(charged, ReplaceVm)
        if isinstance(action, ContinueProvisioning) and action.replacement:
            self._replaced[action.replacement.replica] += 1
        if isinstance(action, RerunJob):
            self._reruns += action.charge is Budget.RERUNS
            self._free_reruns += action.charge is Budget.FREE

    def check(self, state: State) -> None:
        """Raise ViolationError unless the stored budgets equal the count and are within their
        limits.
        """
        job = state.job
        used = (job.budgets.reruns_used, job.attempt)
        if used != (self._reruns, 1 + self._reruns + self._free_reruns):
            counted = f"{self._reruns} reruns, {self._free_reruns} free"
            raise ViolationError(f"I3: stored (reruns, attempt) {used}; counted {counted}")
        if self._reruns > RERUNS_MAX:
            raise ViolationError(f"I3: over the limit: {job.budgets}")
        for replica in state.replicas:
            if not 0 <= replica.restarts_used <= RESTARTS_MAX:
                raise ViolationError(f"I3: over the limit: {replica}")
            expected = (self._restarts[replica.key], self._replaced[replica.key])
            if (replica.restarts_used, replica.replaced) != expected:
                raise ViolationError(
                    f"I3: stored {replica}; counted (restarts, replaced) {expected}"
                )
