"""Handle the requests to provision. This is the only flow that creates, changes or deletes VMs.

ProvisionRequest    make the VMs of one job equal its stored state (`reconciliation`)
AdmissionPass       admit queued jobs under the limits (`admission`)
OrphanSearch        compare all listed VMs with the stored jobs (`vm_check`)

The names in parentheses are modules of `trainmaster.flows.provisioning`.
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning import admission, reconciliation, vm_check
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import internal_requests
from trainmaster.messaging.internal_requests import AdmissionPass, OrphanSearch, ProvisionRequest
from trainmaster.messaging.push import Message


def handle(
    request: ProvisionRequest | OrphanSearch | AdmissionPass,
    fleet_deps: FleetDeps,
    deps: Deps,
    published_at: datetime | None = None,
    message_id: str = "",
) -> None:
    """Provision a job, search for VMs that belong to no job, or admit queued jobs.

    `published_at` is the time of the message; None: now. A request for an admission pass or a check
    of all VMs ends at once if a later one has begun.

    `message_id` names the holder of leases. A redelivery of the message takes the leases of the
    first delivery again.
    """
    match request:
        case OrphanSearch():
            vm_check.handle(fleet_deps, deps, published_at)
        case AdmissionPass():
            admission.admit_all(fleet_deps, deps, message_id, published_at)
        case ProvisionRequest():
            reconciliation.reconcile(request, fleet_deps, deps, message_id)


def on_message(message: Message, deps: Deps, fleet_deps: FleetDeps) -> None:
    request = internal_requests.decode_provision(message.data)
    handle(request, fleet_deps, deps, message.published_at, message.message_id)
