"""Authentication of a TPU slice's events, whose hosts Google names.

A slice is a TPU machine of one or several hosts. Its hosts are machines in a project of Google's,
so their tokens do not have the name of a VM that Trainmaster created. The host that reports first
is *pinned*: later reports for it must come from the same machine.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0
from tests.support.world import World
from tests.unit.functions.senders import ACCOUNT, NOW, Sender
from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.core.model.replica import HostVm, ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.machines.vm_tokens import VmIdentity

OWN = "trainer@my-project.iam.gserviceaccount.com"
"""A service account of the job's own, in place of the installation's."""
AUDIENCE = "trainmaster/my-project/slices_1/1/worker/0/1"
"""What a token is for: project, job, attempt, replica and incarnation."""


def with_a_slice(sender: Sender, job_id: str, **more: str) -> Sender:
    """Return the sender of the messages of a job with a VM, the master, and a slice of one host,
    its worker. `more`: fields of its training input.
    """
    image = {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"}
    training = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "masterConfig": image,
        "region": "us-central1",
    }
    tpu = {"workerType": "ct5lp-hightpu-4t", "workerCount": 1, "workerConfig": image}
    allowed = AllowedResources("my-project", (f"service_account={OWN}",))
    world = World(store=sender.world.store, bus=sender.world.bus, job_id=job_id, allowed=allowed)
    world.submit({"trainingInput": {**training, **tpu, **more}})
    world.deliver()
    world.bus.drain()
    return Sender(world, sender.issuer)


HOST: dict[str, Any] = {"project": "of-google-tp", "instance_name": "t1v-n-1-w-0", "instance_id": 1}
"""A host of a slice: a machine in a project of Google's, with a name of Google's."""


@pytest.fixture
def slice_sender(sender: Sender) -> Sender:
    return with_a_slice(sender, "slices_1")


def test_slice_of_one_host_is_authenticated_without_its_vm_name(slice_sender: Sender) -> None:
    """A slice of one host sends no host number, so only the stored job shows that it is a slice."""
    token = slice_sender.token(audience=AUDIENCE, **HOST)
    assert slice_sender.send(token) == 204
    assert (slice_sender.state, slice_sender.reasons()) == (ReplicaState.RUNNING, [])


def test_vm_of_another_job_cannot_act_for_a_slice(slice_sender: Sender) -> None:
    """Any program may ask its VM's metadata server for a token with the audience of a slice."""
    before = slice_sender.world.ledger
    for name in ("vm_ready", "replica_exit"):
        slice_sender.name = name
        for host in (None, 0):
            token = slice_sender.token(
                audience=AUDIENCE, instance_name=vm_name("attacker_1", CHIEF)
            )
            slice_sender.send(token, host=host, cause="process", exit_status=0)
            assert "is not a host of a TPU slice" in slice_sender.reasons()[0]
    assert slice_sender.world.ledger == before


def test_token_that_names_no_machine_cannot_act_for_a_slice(slice_sender: Sender) -> None:
    """A token in the short format proves the service account only, which all jobs share."""
    vm = VmIdentity(
        ACCOUNT,
        "my-project",
        project_number=1,
        zone="z",
        instance_id=1,
        instance_name="n",
        created_at=NOW,
    )
    slice_sender.send(slice_sender.issuer.identity_token(vm, AUDIENCE, full=False, now=NOW))
    assert "must name its machine" in slice_sender.reasons()[0]
    assert slice_sender.state is ReplicaState.WAITING


def test_host_of_another_slice_cannot_act_for_a_host_that_reported(slice_sender: Sender) -> None:
    slice_sender.send(slice_sender.token(audience=AUDIENCE, **HOST))
    (pinned,) = slice_sender.world.replica(WORKER_0).host_vms
    assert pinned == HostVm(0, "of-google-tp/1")
    slice_sender.name = "replica_exit"
    before = slice_sender.world.ledger
    foreign = slice_sender.token(audience=AUDIENCE, **{**HOST, "instance_id": 2})
    slice_sender.send(foreign, cause="process", exit_status=1)
    assert "host 0 runs on of-google-tp/1" in slice_sender.reasons()[0]
    assert slice_sender.world.ledger == before
    slice_sender.send(slice_sender.token(audience=AUDIENCE, **HOST), cause="process", exit_status=1)
    assert (slice_sender.world.job.round.is_held, slice_sender.reasons()) == (True, [])


def test_replaced_slice_reports_from_other_machines(slice_sender: Sender) -> None:
    slice_sender.send(slice_sender.token(audience=AUDIENCE, **HOST))
    slice_sender.name = "maintenance"
    slice_sender.send(
        slice_sender.token(audience=AUDIENCE, **HOST), cause=LossCause.PREEMPTION.value
    )
    slice_sender.world.deliver()
    slice_sender.name = "vm_ready"
    slice_sender.send(slice_sender.token(audience=AUDIENCE, **{**HOST, "instance_id": 2}))
    assert (slice_sender.state, slice_sender.reasons()) == (ReplicaState.RUNNING, [])
    assert slice_sender.world.replica(WORKER_0).host_vms == (HostVm(0, "of-google-tp/2"),)


def test_event_of_a_host_that_the_slice_does_not_have_is_refused(slice_sender: Sender) -> None:
    slice_sender.send(slice_sender.token(audience=AUDIENCE, **HOST), host=1)
    assert "the event belongs to host 1, but the slice has 1" in slice_sender.reasons()[0]


@pytest.fixture
def own_account_sender(sender: Sender) -> Sender:
    """The job's VM and slice run as the job's own service account."""
    return with_a_slice(sender, "own_1", serviceAccount=OWN)


def report_of_the_master(sender: Sender, account: str) -> ReplicaState:
    """Report that the master's VM, which runs as this account, is ready; return the new state."""
    replica_id = sender.world.job.plan.primary
    subject = sender.world.message_fields(replica_id)
    vm = sender.world.vm(replica_id)
    token = sender.token(
        audience=f"trainmaster/my-project/own_1/1/{subject['task_type']}/0/1",
        email=account,
        instance_name=vm.name,
        instance_id=int(vm.instance_id),
    )
    assert sender.post(json.dumps(subject).encode(), token, NOW, "s") == 204
    return sender.world.replica(replica_id).state


def test_vm_with_the_jobs_own_account_is_authenticated(own_account_sender: Sender) -> None:
    assert report_of_the_master(own_account_sender, OWN) is ReplicaState.RUNNING
    assert own_account_sender.reasons() == []


def test_vm_with_the_workers_account_cannot_act_for_a_job_with_its_own(
    own_account_sender: Sender,
) -> None:
    assert report_of_the_master(own_account_sender, ACCOUNT) is ReplicaState.WAITING
    assert f"VMs run as '{OWN}'" in own_account_sender.reasons()[0]


def test_slice_must_have_the_jobs_own_account(own_account_sender: Sender) -> None:
    audience = "trainmaster/my-project/own_1/1/worker/0/1"
    own_account_sender.send(own_account_sender.token(audience=audience, **HOST))
    (reason,) = own_account_sender.reasons()
    assert f"VMs run as '{OWN}'" in reason
    own_account_sender.send(own_account_sender.token(audience=audience, email=OWN, **HOST))
    assert (own_account_sender.state, own_account_sender.reasons()) == (ReplicaState.RUNNING, [])


def test_host_number_in_an_event_does_not_make_a_vm_a_slice(sender: Sender) -> None:
    assert sender.send(sender.token(instance_name="t1v-n-1-w-0"), host=0) == 204
    assert "the token belongs to VM" in sender.reasons()[0]
    sender.send(sender.token(), host=0)
    assert "the token belongs to VM" in sender.reasons()[0]
