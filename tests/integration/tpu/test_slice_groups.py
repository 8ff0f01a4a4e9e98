"""Several slices of one job, through the real flows: common start, and new addresses after a
replacement.

The slices train and restart together, in rounds. A directive orders the agents of a slice to hold,
which is to wait until the other slice is ready, or to run the program, with the addresses of both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from tests.integration.tpu.slices import ONE_HOST, a_tpu_job
from tests.integration.tpu.test_flows import Plane
from trainmaster.core.events import ExitCause, IncarnationRef, ReplicaExited, VmLost, VmReady, VmRef
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import DirectiveAction, LossCause, Vm
from trainmaster.flows import vm_ready
from trainmaster.flows.commit.record import record
from trainmaster.gcp.fleets import Fleets
from trainmaster_local.memory.fleet import MemoryFleet

FIRST, SECOND = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
HOLD, RUN = DirectiveAction.HOLD, DirectiveAction.RUN


class Ordered(NamedTuple):
    """What a directive orders."""

    incarnation: int
    action: DirectiveAction
    addresses: tuple[str, ...] = ()
    """The addresses of all slices, once all are known."""


HELD_AT_FIRST = Ordered(1, HOLD)
HELD_AGAIN = Ordered(2, HOLD)


@dataclass
class TwoSlices:
    """A job of two slices with one host each. The test sends their events."""

    tpu: MemoryFleet = field(default_factory=MemoryFleet)
    job: Job = field(default_factory=lambda: a_tpu_job(ONE_HOST, count=2))

    def __post_init__(self) -> None:
        self.plane = Plane(Fleets(MemoryFleet(), self.tpu))
        self.plane.submit(self.job)

    def vm(self, replica_id: ReplicaId) -> Vm:
        return next(vm for vm in self.plane.vms(self.job) if vm.replica_id == replica_id)

    def directive(self, replica_id: ReplicaId) -> Ordered:
        directive = self.vm(replica_id).directive
        assert directive is not None
        return Ordered(directive.incarnation, directive.action, tuple(directive.slices))

    @property
    def directives(self) -> list[Ordered]:
        return [self.directive(replica_id) for replica_id in (FIRST, SECOND)]

    def replica(self, replica_id: ReplicaId) -> Replica:
        loaded = self.plane.store.load_attempt(self.job.job_id)
        assert loaded is not None
        return next(
            replica for replica in loaded.state.replicas if replica.replica_id == replica_id
        )

    def subject(self, replica_id: ReplicaId) -> IncarnationRef:
        replica, vm = self.replica(replica_id), self.vm(replica_id)
        ref = VmRef(vm.name, vm.zone, vm.instance_id)
        return IncarnationRef(
            self.job.job_id,
            attempt=1,
            replica_id=replica_id,
            incarnation=self.directive(replica_id).incarnation,
            vm_generation=replica.vm_generation,
            vm=ref,
        )

    def report_ready(self, replica_id: ReplicaId) -> None:
        vm_ready.handle(VmReady(self.subject(replica_id), datetime.now(UTC)), self.plane.deps)

    def begin_round(self) -> tuple[str, str]:
        """Let both report the held round, which then begins. Return the addresses."""
        for replica_id in (FIRST, SECOND):
            self.report_ready(replica_id)
        assert self.plane.provision(self.job)
        return self.vm(FIRST).address, self.vm(SECOND).address

    def fail(self, replica_id: ReplicaId) -> None:
        event = ReplicaExited(
            self.subject(replica_id), datetime.now(UTC), cause=ExitCause.PROCESS, exit_status=1
        )
        record(event, self.plane.deps)

    def preempt(self, replica_id: ReplicaId) -> None:
        subject = self.subject(replica_id)
        self.tpu.stop(self.vm(replica_id).name, LossCause.PREEMPTION)
        record(VmLost(subject, datetime.now(UTC), LossCause.PREEMPTION), self.plane.deps)


@pytest.fixture
def two() -> TwoSlices:
    two = TwoSlices()
    assert two.plane.provision(two.job)
    two.begin_round()
    assert two.plane.job(two.job).state is JobState.RUNNING
    return two


def test_slices_are_created_held_and_start_when_both_are_up() -> None:
    two = TwoSlices(MemoryFleet(is_slow=True))
    assert not two.plane.provision(two.job)
    assert two.directives == [HELD_AT_FIRST] * 2
    config = json.loads(two.tpu.metadata(two.vm(FIRST).name)["trainmaster-vm-config"])
    assert (config["slice_base"], config["environment"]["MASTER_ADDR"]) == (
        0,
        "slice-0.trainmaster.internal",
    )
    two.tpu.settle()
    assert two.plane.provision(two.job)
    assert two.directives == [HELD_AT_FIRST] * 2
    addresses = two.begin_round()
    assert all(addresses)
    assert two.directives == [Ordered(1, RUN, addresses)] * 2


def test_replacement_of_a_slice_gives_both_the_new_addresses(two: TwoSlices) -> None:
    before = two.vm(SECOND).address
    two.preempt(SECOND)
    two.fail(FIRST)  # because its peer is lost
    two.tpu.is_slow = True
    passes = 6  # more than a deletion and a slow creation need
    for _ in range(passes):
        two.plane.provision(two.job)
        two.tpu.settle()
    two.tpu.is_slow = False
    two.report_ready(SECOND)
    two.plane.provision(two.job)
    assert two.directives == [HELD_AGAIN] * 2, (
        "the other one has not reported that its program ended"
    )
    addresses = two.begin_round()
    assert addresses[1] not in ("", before)
    assert two.vm(SECOND).vm_generation == 2
    assert two.directives == [Ordered(2, RUN, addresses)] * 2
    assert two.replica(FIRST).state is ReplicaState.RUNNING
    assert (two.replica(FIRST).restarts_used, two.replica(SECOND).restarts_used) == (0, 0)


def test_replacement_of_both_slices_gives_both_new_addresses(two: TwoSlices) -> None:
    old = {two.vm(replica_id).address for replica_id in (FIRST, SECOND)}
    for replica_id in (FIRST, SECOND):
        two.preempt(replica_id)
    two.plane.provision(two.job)
    addresses = two.begin_round()
    assert not old & set(addresses)
    assert two.directives == [Ordered(2, RUN, addresses)] * 2


def test_slices_that_restart_in_place_keep_the_addresses(two: TwoSlices) -> None:
    before = (two.vm(FIRST).address, two.vm(SECOND).address)
    two.fail(SECOND)
    two.plane.provision(two.job)
    assert two.directives == [HELD_AGAIN] * 2
    assert two.begin_round() == before
    assert two.directives == [Ordered(2, RUN, before)] * 2
    assert (two.replica(FIRST).restarts_used, two.replica(SECOND).restarts_used) == (0, 1)


def test_slice_is_held_until_its_peer_gets_capacity(two: TwoSlices) -> None:
    two.tpu.stockout_zones = set(two.job.plan.where.zones)
    two.preempt(SECOND)
    two.fail(FIRST)
    for _ in range(3):
        two.plane.provision(two.job)
    assert two.directive(FIRST) == HELD_AGAIN
    assert two.plane.store.pending_keys(two.job.job_id), "the sweep retries"
    two.tpu.stockout_zones = set()
    later = datetime.now(UTC) + timedelta(minutes=10)  # longer than the pause between requests
    two.plane.deps = replace(two.plane.deps, clock=lambda: later)
    two.plane.provision(two.job)
    assert two.directives == [HELD_AGAIN] * 2
    addresses = two.begin_round()
    assert two.directives == [Ordered(2, RUN, addresses)] * 2
