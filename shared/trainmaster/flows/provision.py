"""Handle the requests to provision. This is the only flow that creates, changes or deletes VMs.

ProvisionRequest    make the VMs of one job equal its stored state (`reconciliation`)
AdmissionPass       admit queued jobs under the limits (`admission`)
OrphanSearch        compare all listed VMs with the stored jobs (`vm_check`)

The names in parentheses are modules of `trainmaster.flows.provisioning`.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning import admission, reconciliation, vm_check
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import internal_requests
from trainmaster.messaging.internal_requests import AdmissionPass, OrphanSearch, ProvisionRequest
from trainmaster.messaging.push import Message

LATE_S: Final = 120.0
"""Age at which a request without a ledger entry is dropped. The sweep repeats it every minute."""

_log = logging.getLogger(__name__)


def handle(
    request: ProvisionRequest | OrphanSearch | AdmissionPass,
    fleet_deps: FleetDeps,
    deps: Deps,
    published_at: datetime | None = None,
    message_id: str = "",
) -> None:
    """Provision a job, search for VMs that belong to no job, or admit queued jobs.

    `published_at` is the time of the message. A late request that a later sweep has repeated is
    dropped: otherwise the requests of every sweep pile up while provisioning is slower than the
    sweeps.

    `message_id` names the holder of leases. A redelivery of the message takes the leases of the
    first delivery again.
    """
    is_late = published_at is not None and (deps.clock() - published_at > timedelta(seconds=LATE_S))
    if is_late and _is_repeated(request):
        _log.info("dropped a request of %s, which a later sweep has repeated", published_at)
        return
    match request:
        case OrphanSearch():
            vm_check.handle(fleet_deps, deps)
        case AdmissionPass():
            admission.admit_all(fleet_deps, deps, message_id, published_at)
        case ProvisionRequest():
            reconciliation.reconcile(request, fleet_deps, deps, message_id)


def _is_repeated(request: ProvisionRequest | OrphanSearch | AdmissionPass) -> bool:
    """Whether the sweep repeats the request as long as it is needed."""
    return not isinstance(request, ProvisionRequest) or request.entry_key is None


def on_message(message: Message, deps: Deps, fleet_deps: FleetDeps) -> None:
    request = internal_requests.decode_provision(message.data)
    handle(request, fleet_deps, deps, message.published_at, message.message_id)
