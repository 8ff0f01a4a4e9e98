"""A VM is going or gone: its replica starts on another one with the same hostname.

Two tell of it: the agent, before it goes and while it can; and Compute's system-event audit log, which also knows of
VMs that went without a word, or before their agent's first.

    entry ──► whose VM? ──► the replica's present one, by numeric id: lost, for the cause the entry names
                       └──► any other of that job's: provision looks at what is there
"""

from __future__ import annotations

import logging

from shared.core.events import IncarnationRef, VmLost
from shared.core.intake.system_events import SystemEvent
from shared.core.model.replica import replica_key
from shared.core.model.vm_names import replica_id_from_vm_name
from shared.flows.record import Deps, record
from shared.messaging import internal_requests, topics
from shared.ports import Store

_log = logging.getLogger(__name__)


def handle(event: VmLost | SystemEvent, deps: Deps) -> None:
    if isinstance(event, VmLost):
        record(event.subject.job_id, event, deps)
    else:
        _look_after(event, deps)


def _look_after(event: SystemEvent, deps: Deps) -> None:
    """Safe to repeat, late, and for any VM of the project: what is about none of ours is only logged."""
    vm = event.vm
    if not event.matters:
        _log.info("%s of %s: nothing follows from it", event.method, vm.name)
        return
    job_id = deps.store.job_of_vm(vm.name)
    if job_id is None:
        _log.info("%s of %s: no job has such a VM", event.method, vm.name)
        return
    subject = _life_on(job_id, event, deps.store)
    if event.loss is None or subject is None:
        _log.info("%s of %s: looking at the VMs of its job", event.method, vm.name, extra={"job_id": job_id})
        deps.bus.publish(topics.PROVISION, internal_requests.encode_provision(job_id), {})
    else:
        record(job_id, VmLost(subject, event.at, event.loss), deps)


def _life_on(job_id: str, event: SystemEvent, store: Store) -> IncarnationRef | None:
    """The incarnation on this very VM. None where the agent has not spoken from it yet, or the replica has moved to another."""
    found = store.load(job_id)
    if found is None:
        return None
    replica_id = replica_id_from_vm_name(event.vm.name)
    attempt = found.state.job.attempt
    loaded = store.load(job_id, replica_key(attempt, replica_id))
    replica = loaded.state.find(attempt, replica_id) if loaded else None
    if replica is None or replica.instance_id != event.vm.instance_id:
        return None
    return IncarnationRef(job_id, attempt, replica_id, replica.incarnation, replica.vm_generation, event.vm)
