"""Machines that a job keeps, and that the next job takes: the failure table of the decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.jobs import a_spec
from tests.support.world import World, before_next_commit
from trainmaster.core.actions import SucceedJob
from trainmaster.core.events import IncarnationRef, VmLost, VmRef
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet, ReleaseCause, SetState
from trainmaster.core.model.plan import Accelerator
from trainmaster.core.model.purchase import Purchase, Reserved, Spot
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.reporting.phases import PAID, Phase, kept_spans, replica_spans
from trainmaster.core.rules.kept_machines import candidate_in
from trainmaster.core.transitions.change import Change, with_next_version
from trainmaster.core.transitions.kept_machines import ended_set
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import cancel_job, delete_job, release_machines
from trainmaster.gcp.firestore.documents import entry_document, job_document
from trainmaster.messaging.authenticate import AuthDeps, authenticate, expected_audience
from trainmaster.messaging.push import Message
from trainmaster.ports import Claims, IdentityError
from trainmaster.presentation.explanation import explanation
from trainmaster.presentation.job_view import job_view
from trainmaster_local.memory.store import MemoryStore

CHIEF = ReplicaId(TaskType.CHIEF, 0)
MASTER = ReplicaId(TaskType.MASTER, 0)
WORKERS = [ReplicaId(TaskType.WORKER, index) for index in range(2)]
OWNER = "cli:1/anna"
KEEP = {"trainmaster": {"keepMachines": "900s"}}


def a_keeping_spec(keep: str = "900s", **extension: Any) -> dict[str, object]:
    spec = a_spec()
    return {**spec, "trainmaster": {"keepMachines": keep, **extension}}


def deliver(world: World) -> None:
    """Deliver all messages. From then on, the world shows the VMs that the job has taken."""
    world.deliver()
    world.taken_set_id = world.job.set_id


def beat_all(world: World) -> None:
    for vm in world.vms:
        world.fleet.beat(vm.name)


def run_job(world: World, spec: dict[str, object] | None = None, source: str = OWNER) -> None:
    world.submit(spec or a_keeping_spec(), source=f"{source}")
    deliver(world)
    world.report_all_ready()


def succeed(world: World) -> None:
    world.exit_program(world.job.plan.primary, 0)
    deliver(world)


def other(world: World, job_id: str) -> World:
    return replace(world, job_id=job_id, taken_set_id="", ends={}, silent=set())


def machine_set(world: World) -> MachineSet:
    loaded = world.store.load(world.job_id)
    assert loaded is not None
    assert loaded.state.machine_set is not None
    return loaded.state.machine_set


def a_keeping_job() -> World:
    """Return a job that has ended, and whose machines are kept."""
    world = World("first")
    run_job(world)
    succeed(world)
    beat_all(world)
    return world


@pytest.fixture
def first() -> World:
    return a_keeping_job()


def test_machines_of_a_job_that_succeeds_are_kept_and_stopped(first: World) -> None:
    kept = machine_set(first)
    assert (kept.state, kept.holder, kept.tenure) == (SetState.KEPT, "first", 1)
    assert {vm.instance_id for vm in kept.vms} == {vm.instance_id for vm in first.vms}
    assert all(vm.directive and vm.directive.action is DirectiveAction.STOP for vm in first.vms)
    first.check()


def test_next_job_takes_them_in_the_same_vms(first: World) -> None:
    ids = {vm.instance_id for vm in first.vms}
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "first"
    assert {vm.instance_id for vm in second.vms} == ids
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {2}
    assert second.state == "RUNNING"
    configs = [second.fleet.metadata(vm.name)["trainmaster-vm-config"] for vm in second.vms]
    assert all('"job_id":"second"' in config and '"tenure":2' in config for config in configs)
    assert machine_set(second).state is SetState.IN_USE
    assert "takes" in second.store.ledger("second")[1].decision.text
    second.check()
    succeed(second)
    assert (machine_set(second).holder, machine_set(second).tenure) == ("second", 2)
    assert {vm.instance_id for vm in second.vms} == ids


def test_why_says_how_long_they_are_kept_and_calls_nothing_late(first: World) -> None:
    loaded = first.store.load_attempt("first")
    assert loaded is not None
    pending = first.store.pending_keys("first")
    assert pending
    why = explanation(loaded.state, first.ledger, pending, first.now)
    until = f"{machine_set(first).until:%H:%M:%S}"
    assert why["nextSteps"] == [f"Its machines are kept for a next job until {until} UTC."]
    assert why["unconfirmedEffects"] == []


def test_released_at_the_deadline_by_a_stored_release(first: World) -> None:
    first.wait(901)
    first.sweep()
    deliver(first)
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms
    reasons = [entry.decision.reason for entry in first.ledger]
    assert "machines_released" in reasons


def test_sweep_reads_no_replica_of_machines_that_idle(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand machines may be kept for an hour, and swept sixty times."""
    load_attempt = first.store.load_attempt
    read: list[int] = []

    def count(*arguments: Any, **options: Any) -> Any:
        loaded = load_attempt(*arguments, **options)
        read.append(len(loaded.state.replicas) if loaded else 0)
        return loaded

    monkeypatch.setattr(first.store, "load_attempt", count)
    first.wait(60)
    first.provision()
    assert read
    assert not any(read)


def test_kept_until_the_deadline(first: World) -> None:
    first.wait(800)
    first.sweep()
    deliver(first)
    assert first.vms
    assert machine_set(first).state is SetState.KEPT


def test_two_jobs_take_at_once_one_wins_and_the_other_starts_cold(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, third = other(first, "second"), other(first, "third")
    third.submit(a_keeping_spec(), source=OWNER)
    third.bus.take()  # its request is delivered in the middle of the second job's commit
    second.submit(a_keeping_spec(), source=OWNER)

    def take_by_third() -> None:
        third.provision()
        third.taken_set_id = third.job.set_id

    before_next_commit(second, monkeypatch, take_by_third)
    deliver(second)
    assert third.job.set_id == "first"
    assert second.job.set_id == "second"
    assert machine_set(third).holder == "third"
    assert second.vms
    deliver(second)
    assert len(third.vms) == len(third.job.plan.replica_ids)


def test_take_and_deadline_at_once_one_wins(first: World, monkeypatch: pytest.MonkeyPatch) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)

    def expire() -> None:
        kept_machines.release(machine_set(first), ReleaseCause.USER, first.deps)

    before_next_commit(second, monkeypatch, expire)
    deliver(second)
    assert second.job.set_id == "second"
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_late_delivery_of_the_old_holder_changes_nothing(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    before = second.vms
    first.provision()
    first.wait(10_000)  # long after the deadline of the first holder
    first.provision()
    assert {vm.instance_id for vm in second.vms} == {vm.instance_id for vm in before}
    assert [vm.directive for vm in second.vms] == [vm.directive for vm in before]


def test_delivery_that_read_the_old_holder_running_leaves_the_next_holder_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The listing of a late delivery is newer than the state that it has read."""
    world = World("first")
    run_job(world)
    list_vms = world.fleet.list_vms
    second = other(world, "second")
    ids = {vm.instance_id for vm in world.vms}

    def take_before_listing(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(world.fleet, "list_vms", list_vms)
        succeed(world)
        beat_all(world)
        run_job(second)
        return list_vms(*arguments, **options)

    monkeypatch.setattr(world.fleet, "list_vms", take_before_listing)
    world.provision()
    assert second.job.set_id == "first"
    assert {vm.instance_id for vm in second.vms} == ids
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {2}


def test_function_dies_after_the_end_the_sweep_finds_the_holder(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    succeed(second)
    beat_all(second)
    second.wait(901)
    while second.bus.take():
        pass
    second.sweep()  # the VMs have the label of the first job, which holds them no longer
    deliver(second)
    assert machine_set(second).state is SetState.RELEASED
    assert not second.vms


def test_vm_lost_while_kept_is_created_by_the_next_job(first: World) -> None:
    lost = first.vms[-1]
    first.fleet.vanish(lost.name)
    second = other(first, "second")
    run_job(second)
    assert len(second.vms) == len(second.job.plan.replica_ids)
    again = second.vm(lost.replica_id)
    assert again.vm_generation > lost.vm_generation
    assert second.state == "RUNNING"
    assert not any(isinstance(entry.event, VmLost) for entry in second.ledger), "it is not taken"


def test_all_vms_lost_while_kept_the_next_job_starts_cold(first: World) -> None:
    for vm in first.vms:
        first.fleet.vanish(vm.name)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "second"
    assert "none of its VMs runs" in second.ledger[1].decision.text


def test_vm_that_dies_at_the_take_is_lost_free_of_charge(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    commit = second.store.commit
    dying = first.vms[0]

    def commit_then_vanish(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        monkeypatch.setattr(second.store, "commit", commit)
        second.fleet.vanish(dying.name)

    monkeypatch.setattr(second.store, "commit", commit_then_vanish)
    deliver(second)
    replica = second.replica(dying.replica_id)
    assert second.job.set_id == "first"
    assert (replica.vm_generation, replica.restarts_used) == (dying.vm_generation + 1, 0)
    assert second.job.budgets.reruns_used == 0
    assert second.vm(dying.replica_id).instance_id != dying.instance_id


def test_set_whose_vms_are_all_lost_while_kept_is_released_by_the_sweep(first: World) -> None:
    """No VM is left that the orphan search could find, and kept time must not be paid for ever."""
    for vm in first.vms:
        first.fleet.vanish(vm.name)
    first.wait(60)
    first.sweep()
    deliver(first)
    assert machine_set(first).state is SetState.RELEASED
    assert {span.end for span in kept_spans(first.history, machine_set(first))} == {first.now}
    assert first.store.pending_keys("first") == (), "the sweep has nothing more to do"


def test_silent_agents_are_not_taken(first: World) -> None:
    first.wait(80)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "second"


def test_agent_that_hangs_after_the_take_is_replaced_after_three_minutes(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    deliver(second)
    ids = {vm.instance_id for vm in second.vms}
    second.wait(100)
    beat_all(second)
    second.wait(100)
    second.sweep()
    deliver(second)
    assert {vm.instance_id for vm in second.vms} == ids, "their agents set up, and write heartbeats"
    second.wait(100)
    second.sweep()
    deliver(second)
    assert ids.isdisjoint(vm.instance_id for vm in second.vms)


def test_restored_database_deletes_the_later_vms(first: World) -> None:
    backup = first.store.copy()
    second = other(first, "second")
    run_job(second)
    restored = replace(first, store=backup)
    restored.provision()
    assert not restored.vms
    restored.deliver()
    restored.provision()
    assert machine_set(restored).state is SetState.RELEASED


def test_vms_from_before_a_restore_are_orphans_if_their_job_took_others_since() -> None:
    """The job was submitted and ran, and again after the restore, when machines were kept."""
    lost = World("second")
    run_job(lost)
    first = replace(lost, job_id="first", store=MemoryStore())
    run_job(first)
    succeed(first)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "first"
    left = {vm.instance_id for vm in lost.vms}
    for _ in range(3):
        second.wait(600)
        beat_all(second)
        second.sweep()
        deliver(second)
    assert second.state == "RUNNING"
    assert left
    assert not lost.vms
    assert second.vms


def lose_all(world: World) -> None:
    """Let no VM be of use, until the job fails for that."""
    while not world.has_ended:
        world.send("replica-exit", world.job.plan.primary, cause="setup", exit_status=1)
        deliver(world)
        world.wait(2 * 3600)
        world.sweep()
        deliver(world)


def pass_deadline(world: World) -> None:
    world.wait(8 * 24 * 3600)
    world.sweep()


@pytest.mark.parametrize(
    ("end", "state", "is_kept"),
    [
        (lambda world: world.exit_program(world.job.plan.primary, 0), "SUCCEEDED", True),
        (lambda world: world.exit_program(world.job.plan.primary, 3), "FAILED", True),
        (lambda world: cancel_job(world.job_id, "anna", world.deps), "CANCELLED", True),
        (pass_deadline, "CANCELLED", False),
        (lose_all, "FAILED", False),
    ],
    ids=["success", "failure of the program", "user", "deadline", "machines"],
)
def test_which_ends_keep_machines(
    end: Callable[[World], None], state: str, *, is_kept: bool
) -> None:
    world = World("first")
    spec = a_keeping_spec(exitPolicy={"fail": ["3"]}, independentReplicas=True)
    run_job(world, spec)
    end(world)
    deliver(world)
    assert world.state == state
    assert bool(world.vms) is is_kept


def test_zero_takes_and_keeps_nothing(first: World) -> None:
    second = other(first, "second")
    run_job(second, a_keeping_spec("0s"))
    assert second.job.set_id == "first"
    succeed(second)
    assert not second.vms
    assert machine_set(second).state is SetState.RELEASED


@pytest.mark.parametrize(
    ("source", "runtime", "reason"),
    [
        ("cli:1/berta", "2.21", "the submitter is anna (unverified)"),
        ("gs://b/jobs/x.yaml#1", "2.21", "submitter of this job is not known"),
        (OWNER, "pytorch-2.13", "the runtime is tensorflow, and that of this job pytorch"),
    ],
)
def test_job_of_another_kind_starts_cold_and_says_why(
    first: World, source: str, runtime: str, reason: str
) -> None:
    second = other(first, "second")
    run_job(second, {**a_spec(runtimeVersion=runtime), **KEEP}, source)
    assert second.job.set_id == "second"
    assert reason in second.ledger[1].decision.text
    assert first.vms


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"service_account": "a@p.iam.gserviceaccount.com"}, "the service account is the default"),
        ({"network": "projects/1/global/networks/n"}, "the network is the default"),
        ({"kms_key": "k"}, "the encryption key is Google's"),
    ],
)
def test_machines_with_other_access_do_not_fit(
    first: World, change: dict[str, Any], reason: str
) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    plan = second.job.plan
    job = replace(second.job, plan=replace(plan, access=replace(plan.access, **change)))
    choice = kept_machines.choose(job, second.fleet_deps, second.deps)
    assert choice.taken is None
    assert reason in str(choice.misfit)


def with_group(job: Job, **change: Any) -> Job:
    """Return the job with this change of the first role."""
    first, *others = job.plan.groups
    return replace(job, plan=replace(job.plan, groups=(replace(first, **change), *others)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"machine_type": "n1-standard-8"}, "the machine of each chief is n1-standard-4"),
        (
            {"accelerator": Accelerator("nvidia-tesla-t4", 1)},
            "n1-standard-4 with 1 x nvidia-tesla-t4 and 100 GiB",
        ),
        ({"boot_disk_gib": 500}, "GiB"),
        ({"boot_disk_type": "pd-standard"}, "pd-standard"),
        ({"purchase": Purchase(Spot())}, "Spot"),
        ({"purchase": Purchase(Reserved("projects/p/reservations/r"))}, "the reservation"),
    ],
    ids=["machine", "GPU", "disk size", "disk type", "Spot", "reservation"],
)
def test_machines_that_differ_do_not_fit(first: World, change: dict[str, Any], reason: str) -> None:
    kept = machine_set(first)
    job = first.job.placed
    assert candidate_in(kept, job, first.now) == 0
    assert reason in str(candidate_in(kept, with_group(job, **change), first.now))


def test_machines_with_another_boot_image_do_not_fit(first: World) -> None:
    job = first.job.placed
    plan = replace(job.plan, image=replace(job.plan.image, source="images/mine"))
    difference = candidate_in(machine_set(first), replace(job, plan=plan), first.now)
    assert "the boot image is" in str(difference)


def test_machines_of_an_unknown_submitter_are_not_kept() -> None:
    world = World("first")
    run_job(world, source="gs://b/jobs/x.yaml#1")
    succeed(world)
    assert not world.vms


def test_vms_live_a_day_longer_than_those_of_a_job_that_keeps_none(first: World) -> None:
    """Compute Engine deletes them while no function runs, and a chain needs time."""
    second = other(first, "second")
    second.submit(a_spec(), source=OWNER)
    assert first.job.plan.fuse_s - second.job.plan.fuse_s == 24 * 3600


def test_chain_does_not_extend_the_life_of_vms(first: World) -> None:
    end = machine_set(first).fuse_at
    first.wait(60)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    succeed(second)
    assert machine_set(second).fuse_at == end


def test_machines_are_kept_no_longer_than_they_live(first: World) -> None:
    end = first.now + timedelta(minutes=5)
    state = first.store.load_attempt("first").state  # type: ignore[union-attr]  # it exists
    short = replace(machine_set(first), state=SetState.IN_USE, fuse_at=end)
    kept = ended_set(replace(state, machine_set=short), first.job, first.now, keeps=True)
    assert kept is not None
    assert kept.until == end


def test_only_vms_that_have_reported_and_are_bought_as_the_plan_says_are_kept(
    first: World,
) -> None:
    state = first.store.load_attempt("first").state  # type: ignore[union-attr]  # it exists
    spot = Purchase(Spot(losses_max=1))
    groups = tuple(replace(group, purchase=spot) for group in state.job.plan.groups)
    job = replace(state.job, plan=replace(state.job.plan, groups=groups))
    silent, lost, *others = state.replicas
    replicas = (replace(silent, instance_id=None), replace(lost, vms_lost=3), *others)
    kept = ended_set(
        replace(state, job=job, replicas=replicas, machine_set=None), job, first.now, keeps=True
    )
    assert kept is not None
    assert {vm.replica_id for vm in kept.vms} == {one.replica_id for one in others}


def test_machines_whose_time_is_over_are_not_taken(first: World) -> None:
    first.wait(901)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "second"


def test_vm_of_a_later_holder_is_not_taken(first: World) -> None:
    """The database was restored: a later holder, which is not stored, may use them."""
    backup = first.store.copy()
    second = other(first, "second")
    run_job(second)
    beat_all(second)
    third = other(replace(first, store=backup), "third")
    run_job(third)
    assert third.job.set_id == "third"


def test_stockout_of_a_late_delivery_does_not_release_the_machines_of_its_own_job(
    first: World,
) -> None:
    vm = first.vms[0]
    (group,) = (one for one in first.job.plan.groups if one.task_type is vm.replica_id.task_type)
    hold = Directive(1, 1, DirectiveAction.HOLD)
    create = Create(group, vm.zone, 1, hold, (vm.replica_id,), (vm.name,), round=0)
    kept_machines.release_for_capacity(create, first.job, first.deps, is_quota=False)
    assert machine_set(first).is_kept


def test_release_that_comes_early_is_not_recorded(first: World) -> None:
    """The clock of a function may be ahead."""
    kept_machines.release(machine_set(first), ReleaseCause.DEADLINE, first.deps)
    assert machine_set(first).is_kept


def test_function_dies_after_the_take_the_sweep_hands_the_vms_over(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    kept_machines.start(second.job, second.fleet_deps, second.deps)
    assert second.job.set_id == "first"
    while second.bus.take():
        pass
    second.taken_set_id = "first"
    ids = {vm.instance_id for vm in second.vms}
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {1}
    second.sweep()
    second.deliver()
    second.report_all_ready()
    assert {vm.instance_id for vm in second.vms} == ids
    assert second.state == "RUNNING"


def test_job_without_the_field_takes_nothing_and_keeps_nothing(first: World) -> None:
    second = other(first, "second")
    run_job(second, a_spec())
    assert second.job.machines is None
    succeed(second)
    assert not second.vms
    assert first.vms


def test_verified_and_unverified_owners_share_nothing(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    job = replace(second.job, submitted_by="anna")
    choice = kept_machines.choose(job, second.fleet_deps, second.deps)
    assert choice.taken is None
    assert "the submitter is anna (unverified)" in str(choice.misfit)


def test_limit_equal_to_the_set_admits_the_next_job_into_its_room(first: World) -> None:
    vcpus = 4 * len(first.vms)
    limited = replace(other(first, "second"), limits={"vcpus": vcpus})
    run_job(limited)
    assert limited.job.set_id == "first"
    assert limited.state == "RUNNING"


def test_idle_machines_make_room_for_a_job_that_cannot_use_them(first: World) -> None:
    vcpus = 4 * len(first.vms)
    limited = replace(other(first, "second"), limits={"vcpus": vcpus})
    run_job(limited, a_spec())
    assert limited.state == "RUNNING"
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_stockout_of_another_job_releases_machines_of_the_same_kind(first: World) -> None:
    second = other(first, "second")
    first.fleet.capacity = {vm.zone: len(first.vms) for vm in first.vms}
    second.submit(a_spec(), source=OWNER)
    deliver(second)
    assert machine_set(first).state is SetState.RELEASED


def test_deleted_job_releases_its_machines(first: World) -> None:
    delete_job("first", "key", first.deps, by="anna")
    deliver(first)
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_loss_of_a_taken_vm_reaches_the_holder(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    owner = second.store.owner_of_vm(second.vms[0].name)
    assert owner is not None
    assert (owner.job_id, owner.set_id) == ("second", "first")


def test_fewer_replicas_delete_the_rest_and_more_are_created(first: World) -> None:
    spec = a_keeping_spec()
    training_input = spec["trainingInput"]
    assert isinstance(training_input, dict)
    fewer = {**spec, "trainingInput": {**training_input, "workerCount": "1"}}
    second = other(first, "second")
    run_job(second, fewer)
    assert second.job.set_id == "first"
    assert len(second.vms) == len(second.job.plan.replica_ids)
    succeed(second)
    beat_all(second)
    third = other(first, "third")
    run_job(third)
    assert third.job.set_id == "first"
    assert len(third.vms) == len(third.job.plan.replica_ids)
    assert third.state == "RUNNING"


def test_chain_ends_after_a_day(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    kept = machine_set(first)
    a_day = timedelta(hours=24)
    assert candidate_in(kept, second.job, second.now + a_day - timedelta(minutes=5)) == 0
    late = candidate_in(kept, second.job, second.now + a_day + timedelta(minutes=5))
    assert "may run longer than that" in str(late)


def test_job_that_ends_before_its_take_is_written_keeps_the_idle_vms(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that saw the directive of another tenure with the old configuration would start
    again and again.
    """
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    monkeypatch.setattr(second.fleet, "hand_over", lambda *_: False)
    second.provision()
    cancel_job("second", "anna", second.deps)
    deliver(second)
    assert machine_set(second).is_kept
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {1}
    monkeypatch.undo()
    third = other(first, "third")
    beat_all(second)
    run_job(third)
    assert (third.job.set_id, third.job.tenure) == ("first", 3)
    assert third.state == "RUNNING"


def test_user_releases_kept_machines(first: World) -> None:
    assert release_machines("first", first.deps, by="anna")
    deliver(first)
    assert not first.vms
    assert not release_machines("first", first.deps, by="anna")


def test_every_second_of_a_vm_is_paid_by_one_job(first: World) -> None:
    kept_since = first.now
    first.wait(60)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    ended_at = second.now
    first_kept = kept_spans(first.history, machine_set(second))
    taken_at = second.ledger[1].at
    assert {(span.phase, span.end) for span in first_kept} == {(Phase.KEPT, taken_at)}
    assert all(span.start <= kept_since for span in first_kept)
    paid = [span for span in replica_spans(second.history) if span.phase in PAID]
    for replica_id in second.job.plan.replica_ids:
        spans = [span for span in paid if span.replica_id == replica_id]
        assert spans[0].start == taken_at, "the job pays from its take on"
        assert spans[0].phase is Phase.SETTING_UP
        paid_s = sum(span.seconds(ended_at) for span in spans)
        assert paid_s == (ended_at - taken_at).total_seconds()


def test_stored_documents_without_the_field_do_not_have_it() -> None:
    world = World("first")
    run_job(world, a_spec())
    succeed(world)
    documents = [job_document(world.job), *map(entry_document, world.ledger)]
    text = str(documents)
    assert not any(name in text for name in ("machines", "keep_s", "'taken'", "misfit"))


class OneToken:
    """Verifies every token as this one."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def claims(self, token: str) -> Claims:
        del token
        return self._claims


def authenticated(world: World, key: str) -> bool:
    """Return whether a token with this secret in its audience counts for the job's primary."""
    vm = world.vms[0]
    subject = IncarnationRef(
        world.job_id, 1, vm.replica_id, 1, vm.vm_generation, VmRef(vm.name, vm.zone, vm.instance_id)
    )
    audience = expected_audience("my-project", subject) + (f"/{key}" if key else "")
    claims = Claims(
        audience=audience,
        account="vms@p",
        project="my-project",
        zone=vm.zone,
        instance_name=vm.name,
        instance_id=vm.instance_id,
        issued_at=world.now,
        expires_at=world.now + timedelta(hours=1),
    )
    message = Message(b"", {"identity": "token"}, "", world.now)
    deps = AuthDeps(OneToken(claims), world.store, "my-project", "vms@p")
    try:
        authenticate(subject, message, deps)
    except IdentityError:
        return False
    return True


def test_token_from_before_the_take_is_refused(first: World) -> None:
    """A program of the last job had the same VM, and could predict all but the secret."""
    second = other(first, "second")
    run_job(second)
    assert first.job.machines is not None
    assert second.job.machines is not None
    assert authenticated(second, second.job.machines.key)
    assert not authenticated(second, "")
    assert not authenticated(second, first.job.machines.key)


def test_secret_of_the_tenure_is_in_no_event_and_no_message(first: World) -> None:
    assert first.job.machines is not None
    key = first.job.machines.key
    assert len(key) == 32
    texts = [repr(first.job), str(first.ledger), str(job_view(first.job, project="p"))]
    texts += [str(entry_document(entry)) for entry in first.ledger]
    assert not any(key in text for text in texts)


SERVERS = {"parameterServerType": "n1-standard-4", "parameterServerCount": 1}
"""With a parameter server, all replicas are judged each alone."""


@pytest.mark.parametrize("fields", [SERVERS, {}], ids=["judged alone", "member of a round"])
def test_end_beside_a_loss_does_not_keep_the_lost_vm(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    """The loss of a replica that is judged alone changes only this replica's document, and that of
    a member ends its round.
    """
    world = World("first")
    spec = a_keeping_spec()
    training_input: Any = spec["trainingInput"]
    run_job(world, {**spec, "trainingInput": {**training_input, **fields}})
    lost = world.vm(WORKERS[0])

    def lose() -> None:
        world.send("maintenance", WORKERS[0], cause="host_error")

    before_next_commit(world, monkeypatch, lose)
    succeed(world)
    assert world.state == "SUCCEEDED"
    assert world.replica(WORKERS[0]).vm_generation == 2
    kept = machine_set(world)
    assert kept.state is SetState.KEPT
    assert lost.instance_id not in {vm.instance_id for vm in kept.vms}


def test_end_keeps_all_machines_although_replicas_change_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a thousand replicas that are judged alone, one changes whenever a function reads all."""
    world = World("first")
    spec = a_keeping_spec(independentReplicas=True)
    training_input: Any = spec["trainingInput"]
    run_job(world, {**spec, "trainingInput": {**training_input, "workerCount": "99"}})
    commit = world.store.commit
    changing = iter(world.replicas)

    def commit_after_another(loaded: Any, entry: Any, *more: Any) -> None:
        if isinstance(entry.decision.action, SucceedJob):
            replica = with_next_version(next(changing))
            restarted = replace(entry, key=f"restart-{replica.key}")
            at = world.store.load("first", replica.key)
            commit(at, restarted, Change(replicas=(replica,)))
        commit(loaded, entry, *more)

    monkeypatch.setattr(world.store, "commit", commit_after_another)
    succeed(world)
    assert world.state == "SUCCEEDED"
    assert len(machine_set(world).vms) == 100
    monkeypatch.undo()
    assert release_machines("first", world.deps, by="anna")
    deliver(world)
    assert not world.vms


def test_function_that_is_suspended_before_it_reads_decides_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the machines would be kept from a time on at which another job had them."""
    world = World("first")
    run_job(world)
    load = world.store.load

    def load_later(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(world.store, "load", load)
        world.wait(400)
        return load(*arguments, **options)

    monkeypatch.setattr(world.store, "load", load_later)
    cancel_job("first", "anna", world.deps)
    assert world.state == "CANCELLED"
    assert machine_set(world).ended_at == world.now
