"""A digest of a state that is equal for states with the same future.

The rules compare moments (for example whether a peer was lost before or after an incarnation began), but use only
their order. Each moment is therefore replaced by its rank among all moments of the state.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from shared.core.actions import Ignore
from shared.core.model.replica import Replica
from shared.core.rules.reactivation import replicas_to_reactivate
from shared.memory.fleet import MemoryFleet
from shared.memory.store import MemoryStore


def canonical_digest(store: MemoryStore, fleet: MemoryFleet, job_id: str, other_state: object) -> bytes:
    """Return the digest. `other_state` is the rest of the state, as values whose repr shows everything."""
    loaded = store.load_attempt(job_id)
    if loaded is None:
        return hashlib.sha256(repr(other_state).encode()).digest()
    job, replicas = loaded.state.job, loaded.state.replicas
    moments = sorted({at for replica in replicas for at in _compared_moments(replica) if at})
    ranks = {at: rank for rank, at in enumerate(moments)}
    state = (
        (job.state, job.attempt, job.budgets, job.placement.zone_index, job.placement.round, job.started_at is None),
        [_canonical_replica(replica, ranks) for replica in replicas],
        [replica.key for replica in replicas_to_reactivate(loaded.state)],
        sorted(
            (entry.key, entry.is_pending, isinstance(entry.decision.action, Ignore)) for entry in store.ledger(job_id)
        ),
        sorted((vm.name, vm.vm_generation, vm.zone, vm.status, repr(vm.directive)) for vm in fleet.list_vms(job_id)),
        other_state,
    )
    return hashlib.sha256(repr(state).encode()).digest()


def _compared_moments(replica: Replica) -> tuple[datetime | None, ...]:
    """Return the moments that the rules compare."""
    return (replica.ready_at, replica.lost_at, replica.forgiven_at, replica.charged_at)


def _canonical_replica(replica: Replica, ranks: dict[datetime, int]) -> tuple[object, ...]:
    return (
        replica.key,
        replica.state,
        replica.incarnation,
        replica.vm_generation,
        replica.restarts_used,
        replica.collateral,
        replica.replaced,
        replica.last_exit,
        tuple(ranks[at] if at else None for at in _compared_moments(replica)),
    )
