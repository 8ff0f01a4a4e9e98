"""One delivery of a request to provision a job: its lease, the state that it has loaded, its end.

    take the lease ──► load ──► cycles of `reconciliation` ──► finish: confirm, release the lease
                        ▲                │                └──► continue later: publish again
                        └─ a later entry ┘

The lease saves work: of many requests about one job, one lists and plans, and the others end after
two reads. It is not needed for safety. A request that met the lease is not lost, because its ledger
entry is pending: the holder looks for new pending entries after it has released the lease, and the
sweep looks for them every minute. The holder is named by its message id: if its process dies,
Pub/Sub redelivers the message, and the redelivery takes the lease again.

A delivery that cannot finish is acknowledged, not refused: Pub/Sub slows a subscription down that
answers with errors. If it made progress it publishes its request again; if it could only wait, the
next sweep continues.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.model.job import JobState
from trainmaster.core.model.members import is_ready, members
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.commit.history import expire_history
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, Recorded
from trainmaster.flows.provisioning import admission
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision
from trainmaster.ports import Lease, Loaded, PendingEntries

DELIVERY_S: Final = 150.0
"""No cycle and no step begins later in a delivery than this.

It then ends well before its ack deadline of 300 s, even if Compute's rate limit refuses every step
for half a minute.
"""
REQUESTS_MAX: Final = 4
"""How often a request is continued at once. After that, the sweep continues."""
LEASE_S: Final = 120.0
"""Longer than a cycle.

If the holder died and its message is not redelivered, the sweep provisions the job later.
"""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Delivery:
    """One delivery that holds the job's lease."""

    request: ProvisionRequest
    deps: Deps
    lease: Lease
    started_at: datetime
    expires_at: datetime
    """When the lease expires."""
    has_progress: bool = False
    """Whether any step but waiting was executed."""
    placement_rounds: set[int] = field(default_factory=set)
    """The placement rounds that the delivery has seen.

    Several: it went on in a pass over the zones.
    """
    loaded: Loaded | None = None
    """The state, until it is known to have changed."""
    verdict_key: str | None = None
    """Key of the ledger entry of the verdict on a job's round, whose change `loaded` contains;
    None: it contains no such change.
    """
    pending_count: int = 0
    """Pending ledger entries when `loaded` was read, or fewer."""

    @property
    def is_from_sweep(self) -> bool:
        """Whether the scheduled sweep requests it, and not an event that it must confirm."""
        return self.request.entry_key is None

    def take_verdict(self, recorded: Recorded) -> None:
        """Continue with the state to which the verdict on a round has led."""
        self.has_progress |= recorded.is_new
        self.loaded = recorded.loaded
        self.verdict_key = recorded.entry.key
        self.pending_count += recorded.is_new and recorded.entry.is_pending

    def release_quietly(self) -> None:
        """Release the lease after an error. If that fails too, the lease expires."""
        try:
            self.deps.store.release_lease(self.lease)
        except TemporaryError as error:
            _log.warning("%s: the lease was not released: %s", self.request.job_id, error)

    def may_have_changed(self) -> bool:
        """Whether entries may have been committed since `loaded` was read, for one read.

        Only the holder of the lease confirms entries, so their number does not fall meanwhile.
        """
        if self.loaded is None:
            return False  # the next cycle reads the state in any case
        return self.deps.store.count_pending(self.request.job_id) != self.pending_count

    def load(self, *, whole: bool = False) -> Loaded:
        """Read the state: the whole attempt if it decides which VMs are needed, or if `whole`."""
        store = self.deps.store
        self.pending_count = store.count_pending(self.request.job_id)
        loaded = store.load_attempt(self.request.job_id, if_needed=not whole)
        if loaded is None:
            raise PermanentError(f"there is no job {self.request.job_id}")
        self.loaded = loaded
        self.verdict_key = None
        self.placement_rounds.add(loaded.state.job.placement.round)
        return loaded

    def extend_lease(self) -> bool:
        """Extend the lease if less than half of it is left. False: another delivery holds it."""
        now = self.deps.clock()
        if self.expires_at - now >= timedelta(seconds=LEASE_S / 2):
            return True
        self.expires_at = now + timedelta(seconds=LEASE_S)
        lease = self.deps.store.extend_lease(self.lease, self.expires_at)
        self.lease = lease or self.lease
        return lease is not None

    @property
    def is_late(self) -> bool:
        """Whether no further cycle and no further step may begin."""
        return self.deps.clock() - self.started_at >= timedelta(seconds=DELIVERY_S)

    def finish(self, loaded: Loaded, pending: PendingEntries, *, is_done: bool) -> None:
        """Confirm the effects of these ledger entries if nothing is left to do, and release the
        lease.

        `loaded`: the state that the last cycle has worked with. `pending`: the unconfirmed entries
        that it contains; of later ones, only the verdict that the delivery has taken.

        While a round of a running job is held and waits for reports, the first entry stays pending:
        it names the request that begins the round, so a second such request costs one read.

        While the job's machines are kept for another job, all entries stay pending. The sweep finds
        jobs by their pending entries, and must find this one when the time of its machines is over,
        even if none of their VMs is left.
        """
        store = self.deps.store
        job = loaded.state.job
        keys = (*pending.included, *pending.later)
        waiting = [member for member in members(loaded.state) if not is_ready(job, member)]
        is_awaited = job.state is JobState.RUNNING and job.round.is_held and bool(waiting)
        confirmed = keys[1:] if is_awaited else keys
        if loaded.state.keeps_machines:
            confirmed = ()
        if is_done and confirmed:
            expire_history(job, store)
            store.mark_done(job.job_id, confirmed, self.deps.clock(), pending.tokens)
        store.release_lease(self.lease)
        late = sorted(set(store.pending_keys(job.job_id)) - set(keys))
        if late:
            # Their own requests may have met the lease.
            self._publish(ProvisionRequest(job.job_id, late[0]))
        if waiting and job.state is not JobState.QUEUED:
            # The request of the last member to report may have met the lease, too. If all of these
            # members await VMs, none can have reported: another request would find the same state.
            is_some_vm_silent = not all(member.awaits_vm for member in waiting)
            start_if_all_ready(
                job, self.deps, next(iter(keys), None), may_go_without=is_some_vm_silent
            )
        if is_done and job.state.is_terminal:
            admission.request_pass(self.deps)

    def continue_later(self) -> None:
        """Publish the request again.

        A delivery that went on in a pass over the candidates does not count: each pass ends with a
        pause.
        """
        self.deps.store.release_lease(self.lease)
        number = self.request.number
        is_in_one_pass = len(self.placement_rounds) == 1
        if is_in_one_pass:
            number += 1
        if self.has_progress and number <= REQUESTS_MAX:
            self._publish(replace(self.request, number=number))

    def _publish(self, request: ProvisionRequest) -> None:
        self.deps.bus.publish(topics.PROVISION, encode_provision(request), attributes={})
