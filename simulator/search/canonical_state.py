"""A stored state up to the names of its moments: two that differ only in when things happened have the same future.

Only the order of moments matters to the rules (a peer lost before or after a incarnation began), so each is replaced by its
rank among all of the state's.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from shared.core.decisions import Ignore
from shared.core.model.job import Replica
from shared.core.rules.reactivation import replicas_to_reactivate
from shared.memory.fleet import MemoryFleet
from shared.memory.store import MemoryStore


def canonical(store: MemoryStore, fleet: MemoryFleet, job_id: str, rest: object) -> bytes:
    """A digest. `rest` is whatever else makes the state, as values with a telling repr."""
    loaded = store.load_attempt(job_id)
    if loaded is None:
        return hashlib.sha256(repr(rest).encode()).digest()
    job, replicas = loaded.state.job, loaded.state.replicas
    ranks = {at: nth for nth, at in enumerate(sorted({at for each in replicas for at in _moments(each) if at}))}
    stored = (
        (job.state, job.attempt, job.budgets, job.placement.zone_index, job.placement.round, job.started_at is None),
        [_replica(each, ranks) for each in replicas],
        [each.key for each in replicas_to_reactivate(loaded.state)],
        sorted((entry.key, entry.is_pending, isinstance(entry.decision, Ignore)) for entry in store.ledger(job_id)),
        sorted((vm.name, vm.vm_generation, vm.zone, vm.status, repr(vm.directive)) for vm in fleet.list_vms(job_id)),
        rest,
    )
    return hashlib.sha256(repr(stored).encode()).digest()


def _moments(replica: Replica) -> tuple[datetime | None, ...]:
    """Those the rules compare."""
    return (replica.ready_at, replica.lost_at, replica.forgiven_at, replica.charged_at)


def _replica(replica: Replica, ranks: dict[datetime, int]) -> tuple[object, ...]:
    return (
        replica.key,
        replica.state,
        replica.incarnation,
        replica.vm_generation,
        replica.restarts_used,
        replica.collateral,
        replica.replaced,
        replica.last_exit,
        tuple(ranks[at] if at else None for at in _moments(replica)),
    )
