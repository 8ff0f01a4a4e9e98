"""A digest of a state that is equal for states with the same future.

The rules compare moments with each other (for example which member of a round ended first), and
with the time windows of `core.timeouts`. Each moment is therefore replaced by its rank among all
moments of the state, and by which of these windows have passed since. Instance ids are replaced by
name and zone, because they depend on how many VMs were created before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import Ignore
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.round import Round
from trainmaster.flows.provisioning.delivery import LEASE_S
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore

WINDOWS: Final = (timedelta(seconds=LEASE_S),)
"""The windows that can pass during a search. The others are at least fifteen minutes long."""
CONSTANT: Final = ("spec_json", "plan", "version", "round", "restarts")
"""Fields that are equal in all states of a search, that only count writes, or that are compared
separately.
"""

Stored = Job | Round | Replica

_LOST_VM_ID: Final = re.compile(r"-[^-]+-lost$")
"""The part of a loss's key that depends on how many VMs were created before."""


def canonical_digest(
    store: MemoryStore, fleet: MemoryFleet, job_id: str, now: datetime, other_state: object
) -> bytes:
    """Return the digest.

    `other_state` is the rest of the state, as values whose repr shows everything.
    """
    loaded = store.load_attempt(job_id)
    if loaded is None:
        return hashlib.sha256(repr(other_state).encode()).digest()
    job, replicas = loaded.state.job, loaded.state.replicas
    vms = fleet.list_vms(job_id)
    vm_by_id = {vm.instance_id: (vm.name, vm.zone) for vm in vms}
    ledger = store.ledger(job_id)
    stored: tuple[Stored, ...] = (job, job.round, *replicas)
    ends = {entry.ended_at for entry in ledger if entry.ended_at}
    moments = sorted(ends | {at for item in stored for at in _moments(item)})
    ages = {at: (rank, _passed_windows(at, now)) for rank, at in enumerate(moments)}
    is_leased = store.copy().take_lease(job_id, now, now) is None
    state = (
        is_leased,
        _canonical(job, ages, vm_by_id),
        _canonical(job.round, ages, vm_by_id),
        [_canonical(replica, ages, vm_by_id) for replica in replicas],
        [replica.restarts_used for replica in replicas],
        sorted(
            (
                _LOST_VM_ID.sub("-lost", entry.key),
                entry.is_pending,
                isinstance(entry.decision.action, Ignore),
                entry.round or "",
                entry.rank or 0,
                repr(ages[entry.ended_at]) if entry.ended_at else "",
            )
            for entry in ledger
        ),
        sorted((vm.name, vm.vm_generation, vm.zone, vm.status, repr(vm.directive)) for vm in vms),
        other_state,
    )
    return hashlib.sha256(repr(state).encode()).digest()


def _moments(item: Stored | None) -> list[datetime]:
    """Return all times that a stored document contains, whether or not a rule reads them today."""
    values = [getattr(item, entry.name) for entry in fields(item)] if item else []
    return [value for value in values if isinstance(value, datetime)]


def _passed_windows(at: datetime, now: datetime) -> tuple[bool, ...]:
    return tuple(now - at > window for window in WINDOWS)


def _canonical(
    item: Stored | None,
    ages: Mapping[datetime, object],
    vm_by_id: Mapping[str, object],
) -> list[tuple[str, object]]:
    """Return every field of a stored document: times by their age, instance ids by the VM that has
    them.
    """
    values: list[tuple[str, object]] = []
    for entry in fields(item) if item else ():
        value = getattr(item, entry.name)
        if isinstance(value, datetime):
            value = ages[value]
        elif entry.name == "instance_id" and value is not None:
            value = vm_by_id.get(value, "gone")
        if entry.name not in CONSTANT:
            values.append((entry.name, value))
    return values
