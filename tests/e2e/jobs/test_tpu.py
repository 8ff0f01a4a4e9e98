"""Cloud TPU slices of several hosts.

A slice is one replica: its hosts start, fail and are replaced together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from tests.integration.tpu.slices import logs_of
from tests.support.jobs import change_plan
from trainmaster.core.decisions import Reason
from trainmaster.core.events import JobSubmitted
from trainmaster.core.model.purchase import Purchase
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import LossCause, Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.flows.commit.record import record
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.job_creation.intake import new_job
from trainmaster.gcp.tpu_fleet import TpuFleet
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.jobspec.accept import accept
from trainmaster.messaging import internal_requests, topics

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="slices train, and each kind of loss replaces what it must",
        quick=(
            "`integration/tpu/test_flows.py`, `unit/core/rules/test_slice_hosts.py`,"
            " `integration/agent/test_slice_hosts.py`"
        ),
    ),
    pytest.mark.timeout(400),
]

ZONES = ("us-central1-a", "us-south1-a")
SLICE = ReplicaId(TaskType.CHIEF, 0)
FOUR_HOSTS = Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
ONE_SLICE = TaskGroup(SLICE.task_type, 1, machine_type="", tpu=FOUR_HOSTS)
ONE_HOST = Tpu("v5litepod-4", "v2-alpha-tpuv5-lite")


class TpuFleetInZones(TpuFleet):
    """A fleet that lists VMs in ZONES only."""

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = ZONES, zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        return super().list_vms(job_id, tpu_zones)


@dataclass(frozen=True)
class TpuLab(Lab):
    """Submit jobs of one slice of four hosts.

    The local image already contains the runtime's packages.
    """

    def on_slice(
        self, training_input: dict[str, object], name: str, group: TaskGroup = ONE_SLICE
    ) -> str:
        now = datetime.now(UTC)
        spec = accept({"trainingInput": training_input}, default_job_id=f"{name}_{now:%H%M%S%f}")
        job = new_job(spec, f"test:{name}", now)
        plan = change_plan(job.plan, groups=(group,), zones=ZONES, packages=())
        submitted = JobSubmitted(replace(job, plan=plan), now)
        record(submitted, self.deps)
        return job.job_id

    @property
    def deps(self) -> CreationDeps:
        return CreationDeps(
            self.store, self.bus, clock=lambda: datetime.now(UTC), sleep=lambda _: None
        )

    def scripted_on_slice(self, steps: int, group: TaskGroup = ONE_SLICE) -> str:
        return self.on_slice(
            {
                "scaleTier": "BASIC",
                "packageUris": [self.wheel()],
                "pythonModule": "trainer.task",
                "args": ["--steps", str(steps), "--step-seconds", "0.1"],
                "jobDir": f"gs://{self.bucket}/scripted",
                "region": "us-central1",
                "runtimeVersion": "scikit-learn-1.9",
            },
            "scripted_slice",
            group,
        )

    def wait_for_output(self, job_id: str, replica_id: ReplicaId, words: str) -> None:
        """Wait until the current slice of this replica, with one host, has printed the words."""
        folder = self.stack.state_dir / "compute" / "serial"
        self.until(
            lambda: any(words in log for log in logs_of(folder, vm_name(job_id, replica_id))), 120
        )

    def logs(self, job_id: str) -> list[str]:
        """Return the console output of each host of the current slice."""
        return logs_of(self.stack.state_dir / "compute" / "serial", vm_name(job_id, SLICE))

    def wait_for_output_of_all_hosts(self, job_id: str, words: str) -> None:
        def is_so() -> bool:
            job = self.state(job_id).job
            assert not job.state.is_terminal, (
                f"{job.state}: {job.error_message}\n{self.story(job_id)}"
            )
            logs = self.logs(job_id)
            return len(logs) == FOUR_HOSTS.hosts and all(words in log for log in logs)

        self.until(is_so, 120)


@pytest.fixture
def tpus(lab: Lab) -> TpuLab:
    defaults = VmDefaults(lab.stack.state.config.project)
    fleet = TpuFleetInZones(defaults, endpoint=lab.stack.environment["TRAINMASTER_TPU_ENDPOINT"])
    return TpuLab(lab.stack, lab.store, fleet, lab.objects, lab.bus, lab.packages)


class Losses(NamedTuple):
    """What the failures and losses of the slice have led to."""

    restarts_used: int
    """Restarts that are charged to it."""
    replaced: int
    """How often its VMs were replaced after a loss."""
    vm_generation: int
    """Which slice of the replica this is, from 1."""


def losses(tpus: TpuLab, job_id: str) -> Losses:
    (replica,) = tpus.state(job_id).replicas
    return Losses(replica.restarts_used, replica.replaced, replica.vm_generation)


@pytest.mark.slow
def test_slice_of_four_hosts_survives_a_killed_host_and_a_preemption(tpus: TpuLab) -> None:
    """The job file of the JAX example. Ranks and world size count hosts."""
    epochs = 40
    folder = f"gs://{tpus.bucket}/slice_{datetime.now(UTC):%H%M%S%f}"
    arguments = ["--epochs", str(epochs), "--epoch-seconds", "0.5"]
    job_id = tpus.example("tpu_jax", args=arguments, jobDir=folder)
    tpus.wait_for_output_of_all_hosts(job_id, f"epoch 2/{epochs} ")
    name = vm_name(job_id, SLICE)
    tpus.faults.kill_program(name, host=2)
    tpus.until(lambda: tpus.replica(job_id, SLICE).incarnation == 2, 30)
    tpus.wait_for_output_of_all_hosts(job_id, "resuming from epoch")
    killed = Losses(restarts_used=1, replaced=0, vm_generation=1)
    assert losses(tpus, job_id) == killed, "only the killed host's exit is charged"
    before = tpus.vm(job_id, SLICE)
    tpus.faults.preempt(name, notice_s=5)
    tpus.until(lambda: tpus.replica(job_id, SLICE).vm_generation == 2, 60)
    state = tpus.wait_for_success(job_id, 240)
    (replica,) = state.replicas
    assert losses(tpus, job_id) == Losses(restarts_used=1, replaced=1, vm_generation=2)
    assert len(replica.hosts_done) == FOUR_HOSTS.hosts - 1, "the last host's exit ended the job"
    assert replica.instance_id != before.instance_id
    metrics = json.loads(tpus.objects.read(f"{folder}/metrics.json", max_bytes=1 << 20) or b"{}")
    assert (metrics["hosts"], metrics["epochs"]) == (FOUR_HOSTS.hosts, epochs)
    assert metrics["accuracy"] >= 0.95
    assert "resuming from epoch" in tpus.stack.run("trainmaster", "logs", job_id).stdout
    # On a busy machine the notice may end before it is reported; then the slice stops while its
    # program runs.
    reasons = {entry.decision.reason for entry in tpus.decisions(job_id)}
    assert reasons & {Reason.PREEMPTION, Reason.VM_STOPPING}, reasons


def test_slice_preempted_without_notice_is_replaced(tpus: TpuLab) -> None:
    """A preempted slice stays in the state PREEMPTED, and is deleted before the next one is
    created.
    """
    job_id = tpus.scripted_on_slice(MANY_STEPS)
    tpus.wait(job_id, "RUNNING", 120)
    old = tpus.vm(job_id, SLICE)
    tpus.faults.preempt(old.name, notice_s=0)

    def is_lost_or_replaced() -> bool:
        """Whether the loss can be seen.

        A pass of `provision` that is under way replaces the slice at once.
        """
        listed = [vm.loss for vm in tpus.fleet.list_vms(job_id)]
        return listed != [LossCause.GONE] or tpus.replica(job_id, SLICE).vm_generation == 2

    tpus.until(is_lost_or_replaced, 60)
    # As the sweep does every minute.
    tpus.bus.publish(
        topics.PROVISION,
        internal_requests.encode_provision(internal_requests.ProvisionRequest(job_id)),
        {},
    )
    tpus.until(lambda: tpus.replica(job_id, SLICE).vm_generation == 2, 60)
    tpus.until(lambda: tpus.replica(job_id, SLICE).state is ReplicaState.RUNNING, 120)
    assert losses(tpus, job_id) == Losses(restarts_used=0, replaced=1, vm_generation=2)
    new = tpus.vm(job_id, SLICE)
    assert (new.name, new.vm_generation) == (old.name, 2)
    assert new.instance_id != old.instance_id
    assert Reason.PREEMPTION in [entry.decision.reason for entry in tpus.decisions(job_id)]
    tpus.cancel(job_id)


def test_reboot_of_one_host_restarts_all_hosts_of_the_slice(tpus: TpuLab) -> None:
    job_id = tpus.scripted_on_slice(MANY_STEPS)
    tpus.wait(job_id, "RUNNING", 120)
    node = tpus.vm(job_id, SLICE)
    tpus.faults.crash(node.name, host=1)
    tpus.until(lambda: tpus.replica(job_id, SLICE).incarnation == 2, 90)
    tpus.until(lambda: tpus.replica(job_id, SLICE).state is ReplicaState.RUNNING, 120)
    assert tpus.vm(job_id, SLICE).instance_id == node.instance_id, "the slice was not replaced"
    assert losses(tpus, job_id) == Losses(restarts_used=0, replaced=0, vm_generation=1)
    tpus.cancel(job_id)


def test_stockout_moves_the_slice_to_the_next_zone(tpus: TpuLab) -> None:
    tpus.faults.change(stockout_zones=[ZONES[0]])
    try:
        job_id = tpus.scripted_on_slice(2)
        state = tpus.wait_for_success(job_id, 150)
    finally:
        tpus.faults.clear()
    assert state.job.zone == ZONES[1]
    assert Reason.STOCKOUT in [entry.decision.reason for entry in tpus.decisions(job_id)]


def test_slices_get_each_others_addresses_after_a_replacement(tpus: TpuLab) -> None:
    first, second = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
    job_id = tpus.scripted_on_slice(
        MANY_STEPS, group=TaskGroup(TaskType.WORKER, 2, machine_type="", tpu=ONE_HOST)
    )

    def all_are_told(address: str) -> None:
        for number, replica_id in enumerate((first, second)):
            tpus.wait_for_output(job_id, replica_id, f"slice {number} {address}:8080 {address}\n")

    tpus.wait(job_id, "RUNNING", 150)
    old = tpus.vm(job_id, first)
    assert old.address
    all_are_told(old.address)
    tpus.faults.preempt(old.name, notice_s=0)

    def is_preempted_or_replaced() -> bool:
        losses = [vm.loss for vm in tpus.fleet.list_vms(job_id)]
        return LossCause.PREEMPTION in losses or tpus.replica(job_id, first).vm_generation > 1

    tpus.until(is_preempted_or_replaced, 60)
    # As the sweep does every minute.
    tpus.bus.publish(
        topics.PROVISION,
        internal_requests.encode_provision(internal_requests.ProvisionRequest(job_id)),
        {},
    )
    tpus.until(lambda: tpus.replica(job_id, first).vm_generation == 2, 60)
    tpus.faults.kill_program(vm_name(job_id, second))
    tpus.until(
        lambda: (
            {replica.state for replica in tpus.state(job_id).replicas} == {ReplicaState.RUNNING}
        ),
        150,
    )
    all_are_told(tpus.vm(job_id, first).address)
    assert [replica.restarts_used for replica in tpus.state(job_id).replicas] == [0, 0], (
        "the loss of the other slice is free for both"
    )
    tpus.cancel(job_id)


def test_queued_resource_waits_until_capacity_is_available(tpus: TpuLab) -> None:
    waiting = TaskGroup(
        SLICE.task_type, 1, machine_type="", tpu=ONE_HOST, purchase=Purchase(is_queued=True)
    )
    tpus.faults.change(stockout_zones=list(ZONES))
    try:
        job_id = tpus.scripted_on_slice(2, group=waiting)
        tpus.until(
            lambda: Reason.QUEUED in [entry.decision.reason for entry in tpus.store.ledger(job_id)],
            60,
        )
        zone = tpus.state(job_id).job.zone
    finally:
        tpus.faults.clear()
    state = tpus.wait_for_success(job_id, 180)
    assert state.job.zone == zone, "it waited in the zone of its first request"
    tpus.until(lambda: not tpus.fleet.list_vms(job_id), 60)
