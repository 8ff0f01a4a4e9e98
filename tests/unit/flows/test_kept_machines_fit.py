"""Which machines a job keeps when it ends, for how long, and which of them another job may take.

Jobs, machine sets and their holders are explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.jobs import a_spec
from tests.support.kept_jobs import (
    KEPT_S,
    OWNER,
    a_keeping_job,
    a_keeping_spec,
    beat_all,
    deliver,
    machine_set,
    other,
    run_job,
    succeed,
)
from tests.support.world import World
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import SetState
from trainmaster.core.model.purchase import Purchase, Reserved, Spot
from trainmaster.core.model.task_group import Accelerator
from trainmaster.core.rules.kept_machines import candidate_in
from trainmaster.core.transitions.kept_machines import ended_set
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import cancel_job
from trainmaster.gcp.firestore.documents import entry_document, job_document

ONLY_CANDIDATE = 0
"""Index of the job's only candidate: `candidate_in` returns it where the machines fit."""


@pytest.fixture
def first() -> World:
    """Return a job that has ended, and whose machines are kept."""
    return a_keeping_job()


def lose_all(world: World) -> None:
    """Let the setup of the primary fail in each VM, until the job fails."""
    while True:
        world.send("replica-exit", world.job.plan.primary, cause="setup", exit_status=1)
        deliver(world)
        if world.has_ended:
            return
        world.wait(2 * 3600)
        world.sweep()
        deliver(world)


def pass_deadline(world: World) -> None:
    """Wait until the job has run for longer than it may."""
    world.wait(8 * 24 * 3600)
    world.sweep()


@pytest.mark.parametrize(
    ("end", "state", "is_kept"),
    [
        pytest.param(
            lambda world: world.exit_program(world.job.plan.primary, 0),
            "SUCCEEDED",
            True,
            id="success",
        ),
        pytest.param(
            lambda world: world.exit_program(world.job.plan.primary, 3),
            "FAILED",
            True,
            id="failure of the program",
        ),
        pytest.param(
            lambda world: cancel_job(world.job_id, "anna", world.deps), "CANCELLED", True, id="user"
        ),
        pytest.param(pass_deadline, "CANCELLED", False, id="deadline"),
        pytest.param(lose_all, "FAILED", False, id="machines"),
    ],
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
    extension = {"keepMachines": f"{KEPT_S}s"}
    run_job(second, {**a_spec(runtimeVersion=runtime), "trainmaster": extension}, source)
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
        pytest.param(
            {"machine_type": "n1-standard-8"},
            "the machine of each chief is n1-standard-4",
            id="machine",
        ),
        pytest.param(
            {"accelerator": Accelerator("nvidia-tesla-t4", 1)},
            "n1-standard-4 with 1 x nvidia-tesla-t4 and 100 GiB",
            id="GPU",
        ),
        pytest.param({"boot_disk_gib": 500}, "GiB", id="disk size"),
        pytest.param({"boot_disk_type": "pd-standard"}, "pd-standard", id="disk type"),
        pytest.param({"purchase": Purchase(Spot())}, "Spot", id="Spot"),
        pytest.param(
            {"purchase": Purchase(Reserved("projects/p/reservations/r"))},
            "the reservation",
            id="reservation",
        ),
    ],
)
def test_machines_that_differ_do_not_fit(first: World, change: dict[str, Any], reason: str) -> None:
    kept = machine_set(first)
    job = first.job.placed
    assert candidate_in(kept, job, first.now) == ONLY_CANDIDATE
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
    """Compute Engine deletes a VM at the time limit `fuse_s` even while no function runs. A chain
    of jobs that take the VMs from each other needs a longer limit.
    """
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
    # The plan requests on-demand VMs for a replica that has lost more than one Spot VM.
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
    first.wait(KEPT_S + 1)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "second"


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


def test_chain_ends_after_a_day(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    kept = machine_set(first)
    a_day = timedelta(hours=24)
    soon_enough = second.now + a_day - timedelta(minutes=5)
    assert candidate_in(kept, second.job, soon_enough) == ONLY_CANDIDATE
    late = candidate_in(kept, second.job, second.now + a_day + timedelta(minutes=5))
    assert "may run longer than that" in str(late)


FIELDS_OF_KEPT_MACHINES = ("machines", "keep_s", '"taken"', "misfit")
"""How the stored documents of a job name what it has kept or taken."""


def stored_documents(world: World) -> str:
    return "".join(map(str, (job_document(world.job), *map(entry_document, world.ledger))))


def test_only_documents_of_jobs_that_keep_machines_have_their_fields(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    of_keeping_jobs = stored_documents(first) + stored_documents(second)
    assert all(field in of_keeping_jobs for field in FIELDS_OF_KEPT_MACHINES)
    third = other(first, "third")
    run_job(third, a_spec())
    succeed(third)
    assert not [field for field in FIELDS_OF_KEPT_MACHINES if field in stored_documents(third)]
