"""The table of replicas on a job's page in the console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.job import RESTARTS_MAX, State
from trainmaster.core.model.members import state_word
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm_names import vm_name

REPLICAS_MAX: Final = 1_000
"""Most rows of the whole table; the page first shows fewer."""


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica in the table."""

    replica_id: ReplicaId
    state: str
    incarnation: int
    vm: str
    """Name of its VM."""
    vm_generation: int
    restarts: str
    """Restarts used, and their limit."""
    replaced: int
    """How often its VM was replaced."""


def replica_rows(state: State, limit: int) -> tuple[ReplicaRow, ...]:
    """Return rows of at most `limit` replicas, those with incidents first."""
    replicas = sorted(state.replicas, key=_has_no_incident)[:limit]
    return tuple(_replica_row(replica, state) for replica in replicas)


def _replica_row(replica: Replica, state: State) -> ReplicaRow:
    was_ended = state.job.state.is_terminal and replica.state is not ReplicaState.COMPLETED
    return ReplicaRow(
        replica.replica_id,
        "ended" if was_ended else state_word(state.job, replica).lower(),
        replica.incarnation,
        vm_name(state.job.set_id, replica.replica_id),
        replica.vm_generation,
        f"{replica.restarts_used} of {RESTARTS_MAX}",
        replica.replaced,
    )


def _has_no_incident(replica: Replica) -> bool:
    """Return whether the replica runs or has completed, without a restart or another VM.

    The number of its incarnation (execution of its program) does not show that: replicas that train
    together restart together, whichever of them failed.
    """
    is_steady = replica.state in (ReplicaState.RUNNING, ReplicaState.COMPLETED)
    return is_steady and not (replica.restarts_used or replica.replaced)
