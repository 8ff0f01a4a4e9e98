"""The Fleet of slices: what creates, lists, directs and deletes the TPU nodes of jobs.

The first part runs with the adapter in memory and with the emulator, the second with the emulator
only. A directive is what the stored state orders the agent on a node to do.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn, Protocol

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.integration.tpu.slices import (
    FOUR_HOSTS,
    ONE_HOST,
    OTHER_ZONE,
    RUN,
    ZONE,
    Slices,
    a_create,
    a_metadata,
    a_tpu_job,
    create_slice,
    listed,
    parent,
)
from tests.support.captured_logs import CapturedLogs
from tests.support.stack import eventually
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.purchase import Purchase, Reserved
from trainmaster.core.model.vm import Directive, DirectiveAction, LabelledVm, VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.errors import TemporaryError
from trainmaster.gcp import retries
from trainmaster.gcp.retries import FLEET_READ
from trainmaster.gcp.tpu_fleet import listing, queued_resources
from trainmaster.gcp.tpu_fleet.nodes import log_health
from trainmaster.ports import (
    Created,
    Fleet,
    NotCreated,
    Pending,
    Reached,
    ZonesUnreachableError,
    reached,
)
from trainmaster_local.memory.fleet import MemoryFleet

LATER = Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)


class World(Protocol):
    """A fleet, and the capacity of its cloud."""

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
    world: EmulatorWorld = request.getfixturevalue("tpus")
    return world


@pytest.fixture
def job() -> Job:
    return a_tpu_job(ONE_HOST)


def test_created_slice_is_listed(world: World, job: Job) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    create = a_create(job)
    vm = create_slice(world.fleet, job)
    assert (vm.name, vm.zone, vm.replica_id) == (create.names[0], ZONE, create.replica_ids[0])
    assert (vm.status, vm.vm_generation, vm.directive, vm.is_tpu) == (
        VmStatus.RUNNING,
        1,
        RUN,
        True,
    )
    assert vm.instance_id.isdigit()
    assert vm.created_at is not None
    assert before < vm.created_at < datetime.now(UTC) + timedelta(seconds=5)
    assert vm.started_at is not None
    assert world.fleet.list_vms("another_job", job.plan.tpu_zones) == ()
    assert LabelledVm(vm, job_label(job.job_id)) in world.fleet.list_all()


@pytest.mark.parametrize("is_queued", [False, True], ids=["node", "queued"])
def test_slices_of_another_installation_are_not_listed(
    slices: Slices, is_queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a job of the same id."""
    own = {}
    fleet = slices.fleet()
    job = a_tpu_job(ONE_HOST, purchase=Purchase(is_queued=is_queued))
    job = replace(job, started_at=datetime.now(UTC))
    for name in ("", "staging"):
        monkeypatch.setenv("TRAINMASTER_INSTALLATION", name)
        create = a_create(job)
        assert not isinstance(fleet.create(job, create, a_metadata()), NotCreated)
        own[name] = set(create.names)
    for name, names in own.items():
        monkeypatch.setenv("TRAINMASTER_INSTALLATION", name)
        assert {vm.name for vm in listed(fleet, job)} == names
        assert {item.vm.name for item in fleet.list_all()} == names


def test_repeated_create_creates_nothing(world: World, job: Job) -> None:
    vm = create_slice(world.fleet, job)
    assert world.fleet.create(job, a_create(job), a_metadata()) == Created()
    assert listed(world.fleet, job) == (vm,)


def test_slices_of_a_job_are_created_together(world: World) -> None:
    job = a_tpu_job(ONE_HOST, count=3)
    assert world.fleet.create(job, a_create(job), a_metadata()) == Created()
    assert {vm.name for vm in listed(world.fleet, job)} == set(a_create(job).names)


def test_stockout_leaves_no_slice(world: World) -> None:
    job = a_tpu_job(ONE_HOST, count=2)
    world.stock_out(ZONE)
    outcome = world.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.STOCKOUT
    assert listed(world.fleet, job) == ()
    assert world.fleet.create(job, a_create(job, zone=OTHER_ZONE), a_metadata()) == Created()
    assert {vm.zone for vm in listed(world.fleet, job)} == {OTHER_ZONE}


def test_directive_write_needs_the_vm_as_last_listed(world: World, job: Job) -> None:
    vm = create_slice(world.fleet, job)
    assert world.fleet.write_directive(vm, LATER)
    assert not world.fleet.write_directive(
        vm, Directive(attempt=1, incarnation=3, action=DirectiveAction.RUN)
    ), "listed before the last write"
    (current,) = listed(world.fleet, job)
    assert current.directive == LATER
    assert world.fleet.write_directive(
        current, Directive(attempt=1, incarnation=3, action=DirectiveAction.STOP)
    )


def test_delete_may_be_repeated(world: World, job: Job) -> None:
    vm = create_slice(world.fleet, job)
    assert world.fleet.delete(vm)
    assert listed(world.fleet, job) == ()
    assert world.fleet.delete(vm)
    assert not world.fleet.write_directive(vm, LATER)


def test_delete_and_directive_leave_a_newer_slice_of_the_same_name_alone(
    world: World, job: Job
) -> None:
    old = create_slice(world.fleet, job)
    assert world.fleet.delete(old)
    assert world.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Created()
    (young,) = listed(world.fleet, job)
    assert world.fleet.delete(old)
    assert not world.fleet.write_directive(old, LATER)
    assert listed(world.fleet, job) == (young,)


def test_create_is_pending_while_the_predecessor_has_the_name(world: World, job: Job) -> None:
    create_slice(world.fleet, job)
    assert world.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Pending()


def test_slice_has_no_serial_output(world: World, job: Job) -> None:
    assert world.fleet.serial_output(create_slice(world.fleet, job), 7) == ("", 7)


# With the emulator only


def test_each_host_of_a_slice_receives_the_directive(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(FOUR_HOSTS)
    listen = (
        'curl -s -H "Metadata-Flavor: Google"'
        ' "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/trainmaster-directive?wait_for_change=true";'
        " echo; sleep 600"
    )
    assert tpus.fleet.create(job, a_create(job), a_metadata(listen)) == Created()
    (vm,) = listed(tpus.fleet, job)

    def have_all_received() -> bool:
        (current,) = listed(tpus.fleet, job)
        tpus.fleet.write_directive(
            current, Directive(1, (current.directive or RUN).incarnation + 1, DirectiveAction.RUN)
        )
        logs = tpus.slices.logs(vm.name)
        return len(logs) == 4 and all('"incarnation"' in log for log in logs)

    eventually(have_all_received, 30)


def test_directive_keeps_the_other_metadata(tpus: EmulatorWorld, job: Job) -> None:
    vm = create_slice(tpus.fleet, job)
    before = dict(tpus.slices.get(vm.name).metadata)
    assert tpus.fleet.write_directive(vm, LATER)
    after = dict(tpus.slices.get(vm.name).metadata)
    assert after.pop("trainmaster-directive") != before.pop("trainmaster-directive")
    assert after == before == {"startup-script": "sleep 600"}


def test_slow_slice_is_pending_and_requested_once(tpus: EmulatorWorld, job: Job) -> None:
    tpus.slices.compute.faults(slow_s=1.0)
    impatient = tpus.slices.fleet(wait_s=0.1)
    assert impatient.create(job, a_create(job), a_metadata()) == Pending()
    assert {vm.status for vm in listed(impatient, job)} == {VmStatus.CREATING}
    assert impatient.create(job, a_create(job), a_metadata()) == Pending()
    assert tpus.fleet.create(job, a_create(job), a_metadata()) == Created(), (
        "it follows the operation that was started"
    )
    assert len(listed(tpus.fleet, job)) == 1


def test_late_error_is_reported_once_by_the_next_create(tpus: EmulatorWorld, job: Job) -> None:
    """The node does not exist; only its operation has the reason."""
    tpus.slices.compute.faults(stockout_zones=[ZONE], slow_s=0.5)
    impatient = tpus.slices.fleet(wait_s=0.0)
    assert impatient.create(job, a_create(job), a_metadata()) == Pending()
    eventually(lambda: not listed(impatient, job))
    tpus.slices.compute.faults()
    outcome = impatient.create(job, a_create(job), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.STOCKOUT
    assert tpus.fleet.create(job, a_create(job), a_metadata()) == Created()


def test_slices_are_deleted_when_one_of_them_cannot_be_created(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(ONE_HOST, count=2)
    create = a_create(job)
    tpus.slices.run(create.names[1], tpu=ONE_HOST)  # a foreign node has the second name
    outcome = tpus.fleet.create(job, create, a_metadata())
    assert outcome == NotCreated(
        CapacityErrorKind.DENIED,
        "ALREADY_EXISTS",
        f"a node named {parent()}/nodes/{create.names[1]} exists and does not belong to the job",
    )
    eventually(lambda: listed(tpus.fleet, job) == ())
    assert tpus.slices.state(create.names[1]) == "READY", "the foreign node stays"


@pytest.mark.parametrize("zone", ["us-central1-b", "us-nowhere1-z"])
def test_zone_without_the_type_is_a_stockout(tpus: EmulatorWorld, zone: str) -> None:
    job = a_tpu_job(FOUR_HOSTS, zones=("us-central1-b", "us-nowhere1-z"))
    outcome = tpus.fleet.create(job, a_create(job, zone=zone), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.STOCKOUT
    assert listed(tpus.fleet, job) == ()


def test_exhausted_quota_and_invalid_runtime_have_different_kinds(
    tpus: EmulatorWorld, job: Job
) -> None:
    tpus.slices.compute.faults(quota_regions=["us-central1"])
    outcome = tpus.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.QUOTA
    invalid = a_tpu_job(replace(ONE_HOST, runtime="v1-never"))
    outcome = tpus.fleet.create(invalid, a_create(invalid, zone=OTHER_ZONE), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.BLOCKED


def test_exhausted_reservation_is_a_stockout(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(ONE_HOST, purchase=Purchase(Reserved("ours")))
    tpus.stock_out(ZONE)
    outcome = tpus.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (CapacityErrorKind.STOCKOUT, "FAILED_PRECONDITION")


def test_preempted_slice_is_stopped_and_keeps_its_name_until_it_is_deleted(
    tpus: EmulatorWorld, job: Job
) -> None:
    vm = create_slice(tpus.fleet, job)
    tpus.slices.fault(vm.name, "preempt", notice_s=0.1)
    eventually(lambda: tpus.slices.state(vm.name) == "PREEMPTED", 30)
    (preempted,) = listed(tpus.fleet, job)
    assert (preempted.status, preempted.loss) == (VmStatus.STOPPED, "preemption")
    assert not tpus.fleet.write_directive(preempted, LATER)
    assert tpus.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Pending(), (
        "the name is in use"
    )
    assert tpus.fleet.delete(preempted)
    assert tpus.fleet.create(job, a_create(job, vm_generation=2), a_metadata()) == Created()


def test_rate_limited_read_is_repeated_and_then_temporary(
    tpus: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    tpus.slices.compute.faults(rate_limited=1)
    assert listed(tpus.fleet, job) == ()
    for module in (retries, queued_resources):
        monkeypatch.setattr(module, "FLEET_READ", {**FLEET_READ, "retry": None})
    tpus.slices.compute.faults(rate_limited=1)
    with pytest.raises(TemporaryError, match=f"Google cannot reach {ZONE}"):
        listed(tpus.fleet, job)
    tpus.slices.compute.faults(rate_limited=2)
    with pytest.raises(TemporaryError, match="RESOURCE_EXHAUSTED"):
        tpus.fleet.list_all()


def test_unreachable_api_and_refused_project_say_nothing_about_the_nodes(
    tpus: EmulatorWorld, job: Job
) -> None:
    with pytest.raises(TemporaryError):
        listed(tpus.slices.fleet(endpoint="http://127.0.0.1:9"), job)
    with pytest.raises(ZonesUnreachableError, match="an operator can repair: PERMISSION_DENIED"):
        listed(tpus.slices.fleet(project="other"), job)
    with pytest.raises(TemporaryError, match="an operator can repair: PERMISSION_DENIED"):
        tpus.slices.fleet(project="other").list_all()


def test_zone_that_cannot_be_reached_is_named(
    tpus: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FLEET_READ", {"retry": None})
    assert tpus.fleet.create(job, a_create(job), a_metadata()) == Created()
    tpus.slices.compute.faults(unreachable_zones=[ZONE])
    assert reached(lambda: tpus.fleet.list_vms(job.job_id, (ZONE,))) == Reached(
        (), unreachable=(ZONE,), refusal=""
    )
    assert reached(tpus.fleet.list_all) == Reached((), unreachable=(ZONE,), refusal="")
    tpus.slices.compute.faults(disabled_apis=["tpu"])
    with pytest.raises(TemporaryError, match="an operator can repair"):
        tpus.fleet.list_all()


def test_nodes_of_all_pages_are_listed(
    tpus: EmulatorWorld, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    monkeypatch.setattr(listing, "PAGE_SIZE", 1)
    several = a_tpu_job(ONE_HOST, count=3)
    assert tpus.fleet.create(several, a_create(several), a_metadata()) == Created()
    vm = create_slice(tpus.fleet, job)
    assert len(listed(tpus.fleet, several)) == 3
    assert len(tpus.fleet.list_all()) == 4
    assert LabelledVm(vm, job_label(job.job_id)) in tpus.fleet.list_all()


def test_queue_that_cannot_be_listed_does_not_hide_the_nodes(
    tpus: EmulatorWorld, monkeypatch: pytest.MonkeyPatch, caplog: CapturedLogs, job: Job
) -> None:
    vm = create_slice(tpus.fleet, job)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise exceptions.Forbidden("queued resources")

    monkeypatch.setattr(queued_resources.QueuedResources, "list_labelled", refuse)
    assert tpus.fleet.list_all() == (LabelledVm(vm, job_label(job.job_id)),)
    assert "Queued resources cannot be listed in zone -" in caplog.text


def test_node_with_the_label_but_without_a_replica_name_is_ignored(
    tpus: EmulatorWorld, caplog: CapturedLogs
) -> None:
    tpus.slices.run("foreign", tpu=ONE_HOST, labels={"trainmaster-job": "x"})
    tpus.slices.run("without-label", tpu=ONE_HOST)
    assert tpus.fleet.list_all() == ()
    assert "foreign has a job's label, but a name that no replica has" in caplog.text


def test_unhealthy_node_is_logged(caplog: CapturedLogs) -> None:
    symptom = tpu_v2.Symptom(
        symptom_type="HBM_OUT_OF_MEMORY", worker_id="2", details="15.9 of 16 GiB"
    )
    node = tpu_v2.Node(
        name="n", health="UNHEALTHY_MAINTENANCE", health_description="moving", symptoms=[symptom]
    )
    log_health(node)
    assert "TPU node n is UNHEALTHY_MAINTENANCE: moving" in caplog.text
    assert "TPU node n, worker 2: HBM_OUT_OF_MEMORY: 15.9 of 16 GiB" in caplog.text
