"""Two installations in one project: neither touches the VMs or the database of the other."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.fleets import EmulatorWorld, a_create, metadata
from tests.contract.store.building import submit
from tests.support.world import World, run_in_sequence
from trainmaster.core.model.installation import INSTALLATION_VARIABLE
from trainmaster.core.model.job import Job, Label
from trainmaster.core.model.vm_names import vm_name
from trainmaster.flows.provisioning import orphans
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import Created, VmOwner

BOTH = ("", "staging")
AT_ONCE = orphans.OrphanTimes(grace_s=0, age_min_s=0)


def search(fleet: ComputeFleet, world: World) -> None:
    """Search for VMs without a job, as each sweep does."""
    orphans.handle(fleet.list_all(), (), fleet, world.deps, AT_ONCE, run_in_sequence)


def test_sweeps_see_and_delete_the_vms_of_their_own_installation_only(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a job of the same id. One of them labels its VMs like those of the other."""
    labelled = replace(
        job, labels=(Label("tmstaging-job", "digits"), Label("trainmaster-job", "digits"))
    )
    own = {}
    for name in BOTH:
        monkeypatch.setenv(INSTALLATION_VARIABLE, name)
        create = a_create(labelled)
        assert compute.fleet.create(labelled, create, metadata()) == Created()
        own[name] = set(create.names)
    labels = {name: compute.emulator.get(vms.copy().pop()).labels for name, vms in own.items()}
    assert "trainmaster-job" not in labels["staging"], (
        "the list of one installation does not have the VMs of the other"
    )
    assert compute.emulator.names() == own[""] | own["staging"]
    left = own[""] | own["staging"]
    for name in BOTH:
        monkeypatch.setenv(INSTALLATION_VARIABLE, name)
        vms = compute.fleet.list_vms(job.job_id)
        assert (
            {vm.name for vm in vms}
            == {item.vm.name for item in compute.fleet.list_all()}
            == own[name]
        )
        world = World(now=max(vm.created_at for vm in vms if vm.created_at) + timedelta(seconds=1))
        search(compute.fleet, world)
        assert {orphan.name for orphan in world.store.orphans()} == own[name], (
            "its database has no job"
        )
        search(compute.fleet, world)
        left -= own[name]
        assert compute.emulator.names() == left
        assert world.store.owner_of_vm(next(iter(own[BOTH[name == ""]]))) is None


def test_databases_are_separate(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    project = f"test-{uuid.uuid4().hex[:12]}"
    stores = {}
    for name in BOTH:
        monkeypatch.setenv(INSTALLATION_VARIABLE, name)
        stores[name] = FirestoreStore(clients.firestore_client(project))
    job = submit(stores["staging"])
    assert stores["staging"].load(job.job_id)
    assert stores[""].load(job.job_id) is None
    monkeypatch.setenv(INSTALLATION_VARIABLE, "staging")
    chief = job.plan.primary
    assert stores["staging"].owner_of_vm(vm_name(job.job_id, chief)) == VmOwner(
        job.job_id, job.job_id
    )
    monkeypatch.setenv(INSTALLATION_VARIABLE, "")
    assert (
        stores["staging"].owner_of_vm(f"tmstaging{vm_name(job.job_id, chief).removeprefix('tm')}")
        is None
    )
    for store in stores.values():
        store.close()
