"""What the service charged for failures: which budget of a job, and whom its sentence names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainmaster.core.actions import Action, RestartReplica
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica_id import ReplicaId

if TYPE_CHECKING:
    from tests.explorer.jobs import ExploredJob

RESTARTS_MAX: Final = 5
"""Charged restarts of one replica in one attempt."""
RERUNS_MAX: Final = 3
NAMED: Final = re.compile(r"\b(chief|master|worker|ps|evaluator) (\d+)")


@dataclass(frozen=True, slots=True)
class Charge:
    kind: str
    """restart, rerun or fail."""
    replica_id: ReplicaId | None
    named: ReplicaId | None = None
    """Whom the sentence names."""


class Charges:
    """The charges of one job. No budget is exceeded, and a commit charges once at most."""

    def __init__(self, job: ExploredJob) -> None:
        self._job = job
        self._world = job.world
        self.all: list[Charge] = []
        self.reruns = 0
        self._restarts: Counter[tuple[int, ReplicaId]] = Counter()
        """Attempt and replica → its charged restarts that are not excused."""

    def add(self, before: State, after: State, entry: LedgerEntry) -> list[Charge]:
        """Count what the commit of the entry has charged, and return it."""
        charges = list(self._find(before, after, entry))
        self.all += charges
        self._excuse(after, entry.decision.action)
        for charge in charges:
            if charge.kind == "restart" and charge.replica_id:
                self._restarts[after.job.attempt, charge.replica_id] += 1
                if self._restarts[after.job.attempt, charge.replica_id] > RESTARTS_MAX:
                    self._world.violate("more than five restarts of", charge.replica_id)
            self.reruns += charge.kind == "rerun"
        if self.reruns > RERUNS_MAX:
            self._world.violate("more than three reruns")
        if len(charges) > 1:
            self._world.violate("F2 several charges", *charges)
        return charges

    def _find(self, before: State, after: State, entry: LedgerEntry) -> Iterator[Charge]:
        # A restart may excuse earlier ones, so that fewer are charged after it than before.
        known = {replica.key: replica.restarts for replica in before.replicas}
        for replica in after.replicas:
            if set(replica.restarts) - set(known.get(replica.key, ())):
                yield Charge("restart", replica.replica_id, named(entry.decision.text))
        if after.job.budgets.reruns_used > before.job.budgets.reruns_used:
            yield Charge("rerun", named(entry.decision.text))
        has_failed = (
            after.job.state is JobState.FAILED
            and not before.job.state.is_terminal
            and not after.job.tuning
        )
        culprit = named(after.job.error_message or "")
        if has_failed and culprit and not self._is_failed_setup(entry):
            yield Charge("fail", culprit)

    def _is_failed_setup(self, entry: LedgerEntry) -> bool:
        """Whether a set-up failed, which is no failure of a program: with `disableRetries` the
        first one ends the job, else the third.
        """
        if not isinstance(entry.event, ReplicaExited) or entry.event.cause is not ExitCause.SETUP:
            return False
        return any(kind == "setup" for _, _, kind in self._job.faults)

    def _excuse(self, state: State, action: Action) -> None:
        """Take back the earlier restarts that a restart excuses."""
        if isinstance(action, RestartReplica):
            replica = next(found for found in state.replicas if found.key == action.replica)
            self._restarts[replica.attempt, replica.replica_id] -= len(action.excused)


def named(text: str) -> ReplicaId | None:
    """Return the first replica that the text names."""
    match = NAMED.search(text)
    return ReplicaId.parse(f"{match[1]}-{match[2]}") if match else None
