"""A VM is being shut down or is gone: its replica gets another VM with the same hostname.

There are two sources: the VM's agent, while it still can report; and Compute Engine's system-event
audit log, which also covers VMs that went down without a report.

    audit log entry ──► the VM's job
      ├─► the VM is its replica's current one: the VM is lost, for the entry's cause
      └─► any other VM of the job: `provision` compares the VMs with the stored state
"""

from __future__ import annotations

import logging

from trainmaster.core.events import IncarnationRef, VmLost, VmNoticed
from trainmaster.core.intake.system_events import SystemEvent
from trainmaster.core.model.members import current_incarnation
from trainmaster.core.model.replica import replica_key
from trainmaster.core.model.vm_names import replica_id_from_vm_name
from trainmaster.flows.commit.record import Deps, record
from trainmaster.messaging import google_events, internal_requests, topics
from trainmaster.messaging.authenticate import AuthDeps, authenticate_loss
from trainmaster.messaging.push import Message
from trainmaster.ports import Loaded, States

_log = logging.getLogger(__name__)


def handle(
    event: VmLost | VmNoticed | SystemEvent, deps: Deps, loaded: Loaded | None = None
) -> None:
    if isinstance(event, SystemEvent):
        _handle_system_event(event, deps)
    else:
        record(event, deps, loaded=loaded)


def _handle_system_event(event: SystemEvent, deps: Deps) -> None:
    """Handle an audit log entry about any VM of the project, however late or often it
    is delivered.
    """
    vm = event.vm
    if not event.matters:
        _log.info("%s of %s: not relevant", event.method, vm.name)
        return
    owner = deps.store.owner_of_vm(vm.name)
    if owner is None:
        _log.info("%s of %s: not a VM of a job", event.method, vm.name)
        return
    job_id = owner.job_id
    subject = _incarnation_on(job_id, event, deps.store)
    if event.loss is None or subject is None:
        _log.info(
            "%s of %s: comparing the job's VMs", event.method, vm.name, extra={"job_id": job_id}
        )
        deps.bus.publish(
            topics.PROVISION,
            internal_requests.encode_provision(internal_requests.ProvisionRequest(job_id)),
            attributes={},
        )
    else:
        record(VmLost(subject, event.at, event.loss), deps)


def _incarnation_on(job_id: str, event: SystemEvent, store: States) -> IncarnationRef | None:
    """Return the incarnation, one execution of the replica's program, on exactly this VM.

    None: no agent has reported from the VM yet, or the replica has another VM by now.
    """
    loaded = store.load(job_id)
    if loaded is None:
        return None
    replica_id = replica_id_from_vm_name(event.vm.name)
    attempt = loaded.state.job.attempt
    with_replica = store.load(job_id, replica_key(attempt, replica_id))
    replica = with_replica.state.find(attempt, replica_id) if with_replica else None
    if replica is None or replica.instance_id != event.vm.instance_id:
        return None
    incarnation = current_incarnation(loaded.state.job, replica)
    return IncarnationRef(job_id, attempt, replica_id, incarnation, replica.vm_generation, event.vm)


def on_message(message: Message, deps: Deps, auth_deps: AuthDeps | None) -> None:
    event = google_events.decode_maintenance(message.data, message.published_at)
    authenticated = authenticate_loss(event, message, auth_deps)
    handle(event, deps, authenticated.loaded)
