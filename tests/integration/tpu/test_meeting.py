"""Several slices of one job, through the real flows: they begin together, and a replaced one is found by the others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from shared.core.events import ExitCause, IncarnationRef, ReplicaExited, VmLost, VmReady, VmRef
from shared.core.model.job import Job, JobState
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import DirectiveAction, LossCause, Vm
from shared.flows import vm_ready
from shared.flows.record import record
from shared.gcp.fleets import Fleets
from shared.memory.fleet import MemoryFleet
from tests.integration.tpu.test_flows import Plane
from tests.integration.tpu.world import ONE_HOST, a_tpu_job

FIRST, SECOND = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
HOLD, RUN = DirectiveAction.HOLD, DirectiveAction.RUN


@dataclass
class Two:
    """A job of two slices of one host each, which speak when a test lets them."""

    tpu: MemoryFleet = field(default_factory=MemoryFleet)
    job: Job = field(default_factory=lambda: a_tpu_job(ONE_HOST, count=2))

    def __post_init__(self) -> None:
        self.plane = Plane(Fleets(MemoryFleet(), self.tpu))
        self.plane.submit(self.job)

    def vm(self, replica_id: ReplicaId) -> Vm:
        return next(vm for vm in self.plane.vms(self.job) if vm.replica_id == replica_id)

    def told(self, replica_id: ReplicaId) -> tuple[int, DirectiveAction, tuple[str, ...]]:
        directive = self.vm(replica_id).directive
        assert directive is not None
        return directive.incarnation, directive.action, directive.slices

    def replica(self, replica_id: ReplicaId) -> Replica:
        loaded = self.plane.store.load_attempt(self.job.job_id)
        assert loaded is not None
        return next(each for each in loaded.state.replicas if each.replica_id == replica_id)

    def subject(self, replica_id: ReplicaId) -> IncarnationRef:
        replica, vm = self.replica(replica_id), self.vm(replica_id)
        where = VmRef(vm.name, vm.zone, vm.instance_id)
        return IncarnationRef(self.job.job_id, 1, replica_id, replica.incarnation, replica.vm_generation, where)

    def ready(self, replica_id: ReplicaId) -> None:
        vm_ready.handle(VmReady(self.subject(replica_id), datetime.now(UTC)), self.plane.deps)

    def fails(self, replica_id: ReplicaId) -> None:
        event = ReplicaExited(self.subject(replica_id), datetime.now(UTC), cause=ExitCause.PROCESS, exit_status=1)
        record(event, self.plane.deps)

    def is_taken(self, replica_id: ReplicaId) -> None:
        subject = self.subject(replica_id)
        self.tpu.stop(self.vm(replica_id).name, LossCause.PREEMPTION)
        record(VmLost(subject, datetime.now(UTC), LossCause.PREEMPTION), self.plane.deps)


@pytest.fixture
def two() -> Two:
    two = Two()
    assert two.plane.provision(two.job)
    for replica_id in (FIRST, SECOND):
        two.ready(replica_id)
    assert two.plane.job(two.job).state is JobState.RUNNING
    return two


def test_they_are_made_held_and_begin_when_both_are_up() -> None:
    two = Two(MemoryFleet(is_slow=True))
    assert not two.plane.provision(two.job)
    assert [two.told(replica_id) for replica_id in (FIRST, SECOND)] == [(1, HOLD, ())] * 2
    said = json.loads(two.tpu.metadata(two.vm(FIRST).name)["trainmaster-vm-config"])
    assert (said["slice_base"], said["environment"]["MASTER_ADDR"]) == (0, "slice-0.trainmaster.internal")
    two.tpu.settle()
    assert two.plane.provision(two.job)
    addresses = (two.vm(FIRST).address, two.vm(SECOND).address)
    assert all(addresses)
    assert [two.told(replica_id) for replica_id in (FIRST, SECOND)] == [(1, RUN, addresses)] * 2


def test_a_replaced_slice_is_found_where_it_is_now(two: Two) -> None:
    before = two.vm(SECOND).address
    two.is_taken(SECOND)
    two.fails(FIRST)  # of its peer's loss
    two.tpu.is_slow = True
    for _ in range(6):
        two.plane.provision(two.job)
        two.tpu.settle()
    addresses = (two.vm(FIRST).address, two.vm(SECOND).address)
    assert addresses[1] not in ("", before)
    assert two.vm(SECOND).vm_generation == 2
    assert two.told(SECOND) == (2, RUN, addresses)
    assert two.told(FIRST) == (2, HOLD, ()), "its peer has not said yet that it is back"
    two.ready(SECOND)
    two.tpu.is_slow = False
    assert two.plane.provision(two.job)
    assert two.told(FIRST) == (2, RUN, addresses)
    two.ready(FIRST)
    assert two.replica(FIRST).state is ReplicaState.RUNNING
    assert (two.replica(FIRST).restarts_used, two.replica(SECOND).restarts_used) == (0, 0)


def test_when_both_are_taken_both_learn_both_addresses(two: Two) -> None:
    old = {two.vm(replica_id).address for replica_id in (FIRST, SECOND)}
    for replica_id in (FIRST, SECOND):
        two.is_taken(replica_id)
    assert two.plane.provision(two.job)
    addresses = (two.vm(FIRST).address, two.vm(SECOND).address)
    assert not old & set(addresses)
    assert [two.told(replica_id) for replica_id in (FIRST, SECOND)] == [(2, RUN, addresses)] * 2


def test_a_slice_that_restarts_in_place_keeps_the_others_address(two: Two) -> None:
    addresses = (two.vm(FIRST).address, two.vm(SECOND).address)
    two.fails(SECOND)
    assert two.plane.provision(two.job)
    assert two.told(SECOND) == (2, RUN, addresses)
    assert two.told(FIRST) == (1, RUN, addresses)


def test_while_there_is_no_room_for_the_other_one_nothing_is_done_and_nothing_forgotten(two: Two) -> None:
    two.tpu.stockout_zones = set(two.job.plan.zones)
    two.is_taken(SECOND)
    two.fails(FIRST)
    for _ in range(3):
        two.plane.provision(two.job)
    assert two.told(FIRST) == (2, HOLD, ())
    assert two.plane.store.pending_keys(two.job.job_id), "the sweep asks again"
    two.tpu.stockout_zones = set()
    later = datetime.now(UTC)
    two.plane.deps = replace(two.plane.deps, clock=lambda: later.replace(year=later.year + 1))
    two.plane.provision(two.job)
    assert two.told(SECOND)[1] is RUN
