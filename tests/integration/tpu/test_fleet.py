"""The Fleet of slices: one suite for the adapter in memory and for Cloud TPU's emulator, through the real client.

What only a cloud can do (fail later, forget, have strangers with our names) is at the end, on the emulator alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest
from google.cloud import tpu_v2

from shared.core.events import CapacityErrorKind
from shared.core.model.job import Job
from shared.core.model.vm import Directive, DirectiveAction, LabelledVm, Vm, VmStatus
from shared.core.model.vm_names import job_label
from shared.errors import PermanentError, TemporaryError
from shared.gcp.tpu_fleet import fleet as adapter
from shared.gcp.tpu_fleet.nodes import log_health
from shared.memory.fleet import MemoryFleet
from shared.ports import Created, Fleet, NotCreated, Pending
from tests.integration.compute.emulator import eventually
from tests.integration.tpu.world import (
    FOUR_HOSTS,
    ONE_HOST,
    OTHER_ZONE,
    RUN,
    ZONE,
    Slices,
    a_create,
    a_metadata,
    a_tpu_job,
    parent,
)

LATER = Directive(1, 2, DirectiveAction.RUN)


class World(Protocol):
    """A fleet, and what happens to it from outside."""

    @property
    def fleet(self) -> Fleet: ...

    def stock_out(self, *zones: str) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.fleet = MemoryFleet()

    def stock_out(self, *zones: str) -> None:
        self.fleet.stockout_zones = set(zones)


class EmulatorWorld:
    def __init__(self, slices: Slices) -> None:
        self.slices = slices
        self.fleet = slices.fleet()

    def stock_out(self, *zones: str) -> None:
        self.slices.compute.faults(stockout_zones=list(zones))


@pytest.fixture
def tpus(slices: Slices) -> EmulatorWorld:
    return EmulatorWorld(slices)


@pytest.fixture(params=["memory", "emulator"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    found: EmulatorWorld = request.getfixturevalue("tpus")
    return found


@pytest.fixture
def job() -> Job:
    return a_tpu_job(ONE_HOST)


def listed(fleet: Fleet, job: Job) -> tuple[Vm, ...]:
    return fleet.list_vms(job.job_id, job.plan.tpu_zones)


def created(fleet: Fleet, job: Job) -> Vm:
    assert fleet.create(job, a_create(job), a_metadata()) == Created()
    (vm,) = listed(fleet, job)
    return vm


def test_a_slice_that_was_created_is_listed_as_what_it_is(world: World, job: Job) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    create = a_create(job)
    vm = created(world.fleet, job)
    assert (vm.name, vm.zone, vm.replica_id) == (create.names[0], ZONE, create.replica_ids[0])
    assert (vm.status, vm.vm_generation, vm.directive, vm.is_tpu) == (VmStatus.RUNNING, 1, RUN, True)
    assert vm.instance_id.isdigit()
    assert vm.created_at is not None
    assert before < vm.created_at < datetime.now(UTC) + timedelta(seconds=5)
    assert vm.started_at is not None
    assert world.fleet.list_vms("another_job", job.plan.tpu_zones) == ()
    assert LabelledVm(vm, job_label(job.job_id)) in world.fleet.list_all()


def test_creating_again_creates_nothing_more(world: World, job: Job) -> None:
    vm = created(world.fleet, job)
    assert world.fleet.create(job, a_create(job), a_metadata()) == Created()
    assert listed(world.fleet, job) == (vm,)


def test_a_gang_of_slices_is_made_together(world: World) -> None:
    job = a_tpu_job(ONE_HOST, count=3)
    assert world.fleet.create(job, a_create(job), a_metadata()) == Created()
    assert {vm.name for vm in listed(world.fleet, job)} == set(a_create(job).names)


def test_a_stockout_leaves_nothing(world: World) -> None:
    job = a_tpu_job(ONE_HOST, count=2)
    world.stock_out(ZONE)
    outcome = world.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.STOCKOUT
    assert listed(world.fleet, job) == ()
    assert world.fleet.create(job, a_create(job, zone=OTHER_ZONE), a_metadata()) == Created()
    assert {vm.zone for vm in listed(world.fleet, job)} == {OTHER_ZONE}


def test_a_directive_is_written_once_for_each_time_that_it_was_listed(world: World, job: Job) -> None:
    vm = created(world.fleet, job)
    assert world.fleet.write_directive(vm, LATER)
    assert not world.fleet.write_directive(vm, Directive(1, 3, DirectiveAction.RUN)), "listed before the last write"
    (now,) = listed(world.fleet, job)
    assert now.directive == LATER
    assert world.fleet.write_directive(now, Directive(1, 3, DirectiveAction.STOP))


def test_deleting_ends_it_and_may_be_repeated(world: World, job: Job) -> None:
    vm = created(world.fleet, job)
    assert world.fleet.delete(vm)
    assert listed(world.fleet, job) == ()
    assert world.fleet.delete(vm), "what is not there is gone"
    assert not world.fleet.write_directive(vm, LATER)


def test_a_younger_one_of_the_same_name_is_never_hit(world: World, job: Job) -> None:
    old = created(world.fleet, job)
    assert world.fleet.delete(old)
    assert world.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Created()
    (young,) = listed(world.fleet, job)
    assert world.fleet.delete(old)
    assert not world.fleet.write_directive(old, LATER)
    assert listed(world.fleet, job) == (young,)


def test_a_name_that_a_predecessor_still_has_is_waited_for(world: World, job: Job) -> None:
    created(world.fleet, job)
    assert world.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Pending()


def test_no_console_is_shown(world: World, job: Job) -> None:
    assert world.fleet.serial_output(created(world.fleet, job), 7) == ("", 7)


# On the emulator alone


def test_every_host_of_a_slice_hears_its_directive(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(FOUR_HOSTS)
    listen = (
        'curl -s -H "Metadata-Flavor: Google" "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/'
        'trainmaster-directive?wait_for_change=true"; echo; sleep 600'
    )
    assert tpus.fleet.create(job, a_create(job), a_metadata(listen)) == Created()
    (vm,) = listed(tpus.fleet, job)

    def all_heard() -> bool:
        (now,) = listed(tpus.fleet, job)
        tpus.fleet.write_directive(now, Directive(1, (now.directive or RUN).incarnation + 1, DirectiveAction.RUN))
        logs = tpus.slices.logs(vm.name)
        return len(logs) == 4 and all('"incarnation"' in log for log in logs)

    eventually(all_heard, 30)


def test_a_directive_leaves_everything_else_as_it_is(tpus: EmulatorWorld, job: Job) -> None:
    vm = created(tpus.fleet, job)
    before = dict(tpus.slices.get(vm.name).metadata)
    assert tpus.fleet.write_directive(vm, LATER)
    after = dict(tpus.slices.get(vm.name).metadata)
    assert after.pop("trainmaster-directive") != before.pop("trainmaster-directive")
    assert after == before == {"startup-script": "sleep 600"}


def test_slow_slices_are_pending_and_asked_for_once(tpus: EmulatorWorld, job: Job) -> None:
    tpus.slices.compute.faults(slow_s=1.0)
    impatient = tpus.slices.fleet(wait_s=0.1)
    assert impatient.create(job, a_create(job), a_metadata()) == Pending()
    assert {vm.status for vm in listed(impatient, job)} == {VmStatus.CREATING}
    assert impatient.create(job, a_create(job), a_metadata()) == Pending()
    assert tpus.fleet.create(job, a_create(job), a_metadata()) == Created(), "the operation that was begun is followed"
    assert len(listed(tpus.fleet, job)) == 1


def test_a_refusal_that_nobody_waited_for_is_told_once(tpus: EmulatorWorld, job: Job) -> None:
    """The node is simply not there: its operation knows why."""
    tpus.slices.compute.faults(stockout_zones=[ZONE], slow_s=0.5)
    impatient = tpus.slices.fleet(wait_s=0.0)
    assert impatient.create(job, a_create(job), a_metadata()) == Pending()
    eventually(lambda: not listed(impatient, job))
    tpus.slices.compute.faults()
    refused = impatient.create(job, a_create(job), a_metadata())
    assert isinstance(refused, NotCreated)
    assert refused.kind is CapacityErrorKind.STOCKOUT
    assert tpus.fleet.create(job, a_create(job), a_metadata()) == Created()


def test_a_gang_of_which_one_is_refused_is_taken_back(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(ONE_HOST, count=2)
    create = a_create(job)
    tpus.slices.run(create.names[1], tpu=ONE_HOST)  # a stranger has the second name
    refused = tpus.fleet.create(job, create, a_metadata())
    assert refused == NotCreated(
        CapacityErrorKind.DENIED, "ALREADY_EXISTS", f"{parent()}/nodes/{create.names[1]} exists and is not this job's"
    )
    eventually(lambda: listed(tpus.fleet, job) == ())
    assert tpus.slices.state(create.names[1]) == "READY", "the stranger's is left alone"


@pytest.mark.parametrize("zone", ["us-central1-b", "us-nowhere1-z"])
def test_a_zone_without_such_tpus_or_without_any_is_passed_over(tpus: EmulatorWorld, zone: str) -> None:
    job = a_tpu_job(FOUR_HOSTS, zones=("us-central1-b", "us-nowhere1-z"))
    refused = tpus.fleet.create(job, a_create(job, zone=zone), a_metadata())
    assert isinstance(refused, NotCreated)
    assert refused.kind is CapacityErrorKind.STOCKOUT
    assert listed(tpus.fleet, job) == ()


def test_no_quota_and_a_wrong_runtime_are_told_apart(tpus: EmulatorWorld, job: Job) -> None:
    tpus.slices.compute.faults(quota_regions=["us-central1"])
    refused = tpus.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(refused, NotCreated)
    assert refused.kind is CapacityErrorKind.QUOTA
    wrong = a_tpu_job(replace(ONE_HOST, runtime="v1-never"))
    refused = tpus.fleet.create(wrong, a_create(wrong, zone=OTHER_ZONE), a_metadata())
    assert isinstance(refused, NotCreated)
    assert refused.kind is CapacityErrorKind.DENIED


def test_a_reservation_that_is_used_up_is_a_stockout(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(ONE_HOST, reservation="ours")
    tpus.stock_out(ZONE)
    refused = tpus.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(refused, NotCreated)
    assert (refused.kind, refused.code) == (CapacityErrorKind.STOCKOUT, "FAILED_PRECONDITION")


def test_a_preempted_slice_stays_takes_no_directive_and_is_deleted_like_any_other(
    tpus: EmulatorWorld, job: Job
) -> None:
    vm = created(tpus.fleet, job)
    tpus.slices.fault(vm.name, "preempt", notice_s=0.1)
    eventually(lambda: tpus.slices.state(vm.name) == "PREEMPTED", 30)
    (gone,) = listed(tpus.fleet, job)
    assert (gone.status, gone.loss) == (VmStatus.STOPPED, "preemption")
    assert not tpus.fleet.write_directive(gone, LATER)
    assert tpus.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Pending(), "its name is taken"
    assert tpus.fleet.delete(gone)
    assert tpus.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Created()


def test_rate_limits_pass_and_strange_projects_do_not(tpus: EmulatorWorld, job: Job) -> None:
    tpus.slices.compute.faults(rate_limited=1)
    with pytest.raises(TemporaryError, match="RESOURCE_EXHAUSTED"):
        listed(tpus.fleet, job)
    assert listed(tpus.fleet, job) == ()
    with pytest.raises(TemporaryError):
        listed(tpus.slices.fleet(endpoint="http://127.0.0.1:9"), job)
    with pytest.raises(PermanentError, match="PERMISSION_DENIED"):
        listed(tpus.slices.fleet(project="other"), job)


def test_more_nodes_than_a_page_holds_are_all_listed(
    tpus: EmulatorWorld, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    monkeypatch.setattr(adapter, "PAGE_SIZE", 1)
    several = a_tpu_job(ONE_HOST, count=3)
    assert tpus.fleet.create(several, a_create(several), a_metadata()) == Created()
    vm = created(tpus.fleet, job)
    assert len(listed(tpus.fleet, several)) == 3
    assert len(tpus.fleet.list_all()) == 4
    assert LabelledVm(vm, job_label(job.job_id)) in tpus.fleet.list_all()


def test_a_node_with_our_label_and_a_name_that_no_seat_has_is_not_ours(
    tpus: EmulatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    tpus.slices.run("somebodys", tpu=ONE_HOST, labels={"trainmaster-job": "x"})
    tpus.slices.run("without-label", tpu=ONE_HOST)
    assert tpus.fleet.list_all() == ()
    assert "somebodys carries a job's label but no replica's name" in caplog.text


def test_an_unhealthy_node_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    symptom = tpu_v2.Symptom(symptom_type="HBM_OUT_OF_MEMORY", worker_id="2", details="15.9 of 16 GiB")
    node = tpu_v2.Node(name="n", health="UNHEALTHY_MAINTENANCE", health_description="moving", symptoms=[symptom])
    log_health(node)
    assert "TPU node n is UNHEALTHY_MAINTENANCE: moving" in caplog.text
    assert "TPU node n, worker 2: HBM_OUT_OF_MEMORY: 15.9 of 16 GiB" in caplog.text
