"""Invariants of a job's cluster: what must be true within a bounded time, and what slices report.

ready     a job is RUNNING soon after its last required replica has become ready
zones     all running replicas are in one zone, because a member's address contains its zone
hosts     a slice is ready, or completed, only when each of its hosts has reported it in the same
          incarnation

`JobInvariants` calls `apply` for each decision and `check_time_limits` after each action of the
simulated world. A *slice* is a replica on a TPU machine of several hosts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from trainmaster.core.actions import Ignore, MarkReady, RecordCompletion, SucceedJob
from trainmaster.core.events import ReplicaExited, VmReady
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.world.context import Context

REPAIR_MAX_S: Final = 400.0
"""Longest time for which running replicas may be in two zones: that of a few sweeps."""
READY_MAX_S: Final = 10.0
"""Longest time for which a job may stay PREPARING after its last replica became ready, if no
message is delayed.
"""


@dataclass(slots=True)
class ClusterInvariants:
    """The invariants of one job's cluster, updated after every decision."""

    context: Context
    _delays_messages: bool = field(init=False)
    """Whether the faults of the history may delay a message for minutes."""
    _zones: dict[ReplicaId, str] = field(default_factory=dict)
    """Zone from which each replica last became ready."""
    _reported_hosts: defaultdict[tuple[str, str], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """Hosts that reported, by type of event and incarnation."""
    _ready_since: float | None = None
    """Since when all replicas are ready and the job is still PREPARING."""
    _split_since: float | None = None
    """Since when the replicas are running in two zones."""

    def __post_init__(self) -> None:
        self._delays_messages = self.context.faults.delays_messages

    def check_time_limits(self) -> None:
        """Raise ViolationError if a transitional state has lasted too long.

        Called after every action.
        """
        now = self.context.now
        is_late = self._ready_since is not None and now - self._ready_since > READY_MAX_S
        if is_late and not self._delays_messages:
            raise ViolationError("ready: all replicas are ready, and the job is still PREPARING")
        if self._split_since is not None and now - self._split_since > REPAIR_MAX_S:
            raise ViolationError(f"zones: the replicas run in more than one zone: {self._zones}")

    def apply(self, entry: LedgerEntry, state: State) -> None:
        """Record one more decision, which led to `state`."""
        self._check_hosts(entry, state.job)
        self._track_zones(entry, state)
        job = state.job
        required = [
            replica for replica in state.replicas if is_required(job.plan, replica.replica_id)
        ]
        are_all_ready = all(replica.ever_ready for replica in required)
        # While a round (common start) is held, its members still wait for each other.
        is_preparing = job.state is JobState.PREPARING and not job.round.is_held
        is_overdue = is_preparing and are_all_ready
        self._ready_since = self._since(self._ready_since, condition=is_overdue)

    def _since(self, since: float | None, *, condition: bool) -> float | None:
        """Return since when the condition holds, given since when it held before."""
        if not condition:
            return None
        return since or self.context.now

    def _check_hosts(self, entry: LedgerEntry, job: Job) -> None:
        """Note which host of a slice has reported; raise ViolationError for a decision about the
        slice that was made before all have.
        """
        event = entry.event
        decision = entry.decision
        if not isinstance(event, VmReady | ReplicaExited) or event.subject.host is None:
            return
        if isinstance(decision.action, Ignore):
            return
        reported = self._reported_hosts[type(event).__name__, event.subject.key]
        reported.add(event.subject.host)
        is_about_slice = isinstance(decision.action, MarkReady | RecordCompletion | SucceedJob)
        hosts = job.placed.plan.group(event.subject.replica_id.task_type).hosts
        if is_about_slice and len(reported) < hosts:
            raise ViolationError(
                f"hosts: {decision.action.kind} after reports of {len(reported)} of {hosts}:"
                f" {entry.key}"
            )

    def _track_zones(self, entry: LedgerEntry, state: State) -> None:
        """Note the zone of a replica that became ready, and since when running replicas are in two
        zones.
        """
        if isinstance(entry.event, VmReady) and isinstance(entry.decision.action, MarkReady):
            self._zones[entry.event.subject.replica_id] = entry.event.subject.vm.zone
        running = [
            replica.replica_id
            for replica in state.replicas
            if replica.state is ReplicaState.RUNNING
        ]
        zones = {self._zones[replica_id] for replica_id in running}
        is_split = len(zones) > 1 and not state.job.state.is_terminal
        self._split_since = self._since(self._split_since, condition=is_split)
