"""Compute Engine and Cloud TPU: VMs as they really are, and the fleet through which the flows see
them.

    insert ──► CREATING ──► RUNNING ──► STOPPING ──► STOPPED or removed
                   └ stockout     └ preemption, maintenance, host error, reboot, hang

Names are zonal. A request id returns its first result forever, as in Compute Engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from tests.explorer.agent_host import AgentHost
from tests.explorer.causes import HANG, REBOOT, VM
from tests.explorer.world import World
from tests.unit.cost.price_lists import price_list
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.intake.system_events import log_name
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import job_label, replica_id_from_vm_name
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.cost.machine_price import machine_price
from trainmaster.errors import TemporaryError
from trainmaster.gcp.compute_fleet.purchase_requests import PREEMPTION_NOTICE_S
from trainmaster.messaging import topics
from trainmaster.ports import Created, CreateOutcome, NotCreated, Pending
from trainmaster.ports.fleet import complete

if TYPE_CHECKING:
    from tests.explorer.jobs import ExploredJob

CREATE_S: Final = (5.0, 25.0)
SLOW_CREATE_S: Final = (30.0, 150.0)
INSERT_WAIT_S: Final = 20.0
DELETE_WAIT_S: Final = 3.0
WITHDRAWN_S: Final = (1.0, 50.0)
UNREACHABLE_S: Final = (30.0, 900.0)
MINUTE_S: Final = 60.0
FIRST_ID: Final = 1000
"""The ids of VMs follow this number."""
UP: Final = (VmStatus.CREATING, VmStatus.RUNNING)


class ExploredVm:
    """One VM, or one TPU slice, whose hosts have an agent each."""

    def __init__(
        self,
        cloud: Cloud,
        job: ExploredJob,
        create: Create,
        name: str,
        metadata: Mapping[str, str],
        set_id: str,
    ) -> None:
        cloud.count += 1
        self.cloud = cloud
        self.world = cloud.world
        self.job = job
        """The job that has it: another one may take it."""
        self.set_id = set_id
        """Id of its machine set, for ever."""
        self.name = name
        self.zone = create.zone
        self.generation = create.vm_generation
        self.instance_id = str(cloud.count)
        self.replica_id = replica_id_from_vm_name(name)
        self.is_tpu = create.group.tpu is not None
        self.is_spot = create.price.is_preemptible
        self.hosts = create.group.hosts
        self.metadata = metadata
        """Its entries when it was created."""
        self.directive = Directive.from_metadata(json.loads(metadata["trainmaster-directive"]))
        self.fingerprint = 1
        self.per_hour = 0.0
        """Its list price, if the job has a cap."""
        self.status = VmStatus.CREATING
        self.reason = LossCause.GONE
        self.created_at = self.world.clock()
        self.started_at: datetime | None = None
        self.agents: list[AgentHost] = []
        self.is_gone = self.is_hung = False
        self.failed_s: float | None = None
        """When the machine failed, or its end was announced.

        A deletion by the service is no failure.
        """

    def observe(self) -> Vm:
        """Return the VM as the API lists it now."""
        return Vm(
            self.name,
            self.zone,
            self.instance_id,
            self.status,
            self.replica_id,
            self.generation,
            self.directive,
            str(self.fingerprint),
            self.created_at,
            self.started_at,
            self.is_tpu,
            self.reason,
            f"10.0.0.{self.instance_id}" if self.is_tpu and self.started_at else "",
        )

    def start(self) -> None:
        """The insert has succeeded: boot the agents, and plan the machine's fault."""
        world = self.world
        profile = world.profile
        self.status = VmStatus.RUNNING
        self.started_at = world.clock()
        world.log("up", self, "generation", self.generation, self.zone)
        numbers = range(self.hosts) if self.hosts > 1 else (None,)
        self.agents = [AgentHost(self, number) for number in numbers]
        for agent in self.agents:
            agent.boot()
        if world.chance(profile.early_loss):
            world.within((0.1, 60.0), self.vanish)
        else:
            self._plan_fault()

    def _meet_fault(self) -> None:
        world = self.world
        if (
            not world.has_faults
            or self.status is not VmStatus.RUNNING
            or self.is_hung
            or self.is_gone
        ):
            return
        faults: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.35, self._preempt),
            (0.15, self._maintain),
            (0.25, self.vanish),
            (world.profile.reboots, self._reboot),
            (0.08, self.hang),
            (world.profile.withdrawn, self._withdraw_maintenance),
        )
        weights = [weight for weight, _ in faults]
        _, meet = world.rng.choices(faults, weights)[0]
        meet()

    def _plan_fault(self) -> None:
        per_hour = self.world.profile.loss_per_hour
        if per_hour and self.world.has_faults:
            self.world.after(self.world.rng.expovariate(per_hour / 3600), self._meet_fault)

    def _preempt(self) -> None:
        """Preempt the VM: with the notice that requests for Spot VMs ask for, or without one."""
        stays = self.world.rng.random() < 0.5
        has_notice = self.is_spot and not self.is_tpu
        in_s = float(PREEMPTION_NOTICE_S) if has_notice else 0.0
        self._announce(LossCause.PREEMPTION, in_s, (5.0, 30.0), stays=stays)

    def _maintain(self) -> None:
        in_s = self.world.between((2.0, 100.0))
        self._announce(LossCause.MAINTENANCE, in_s, (30.0, 30.0), stays=True)

    def _withdraw_maintenance(self) -> None:
        self.job.note_fault(self, "withdrawn")
        for agent in self.agents:
            agent.announce(LossCause.MAINTENANCE)
            self.world.within(WITHDRAWN_S, agent.withdraw_maintenance)
        self._plan_fault()

    def _reboot(self) -> None:
        world = self.world
        agent = world.rng.choice(self.agents)
        world.log("reboot", self)
        self.job.note_fault(self, REBOOT)
        agent.power_off(REBOOT)
        world.within((5.0, 40.0), agent.boot)
        self._plan_fault()

    def hang(self) -> None:
        self.is_hung = True
        self.fail(HANG)
        for agent in self.agents:
            agent.power_off(HANG)

    def fail(self, kind: str) -> None:
        if self.failed_s is None:
            self.failed_s = self.world.now_s
            self.world.log(kind, self, self.instance_id)
            self.job.note_fault(self, kind)

    def _announce(
        self, cause: LossCause, in_s: float, within_s: tuple[float, float], *, stays: bool
    ) -> None:
        self.fail(cause.value)
        for agent in self.agents:
            self.world.within((0.1, 3.0), agent.announce, cause.value)
        self.world.after(in_s, self.shut_down, self.world.between(within_s), stays)

    def vanish(self) -> None:
        """The host fails, or the VM is preempted without notice."""
        if self.is_gone or self.status not in UP:
            return
        self.fail("lost")
        self.reason = LossCause.PREEMPTION if self.is_spot else LossCause.GONE
        self._end(stays=self.world.rng.random() < 0.5)
        if self.world.rng.random() < 0.5:
            self.world.within((1.0, 30.0), self._write_audit_log)

    def shut_down(self, within_s: float, stays: bool) -> None:
        if self.is_gone or self.status not in UP:
            return
        self.status = VmStatus.STOPPING
        for agent in self.agents:
            agent.shut_down()
        self.world.after(within_s, lambda: self._end(stays=stays))

    def _end(self, *, stays: bool) -> None:
        if self.is_gone:
            return
        if self.failed_s is not None:
            self.job.note_fault(self, "gone")
        if self.started_at and self.status is not VmStatus.STOPPED:
            self.job.cost += (
                self.per_hour * (self.world.clock() - self.created_at).total_seconds() / 3600
            )
        for agent in self.agents:
            agent.power_off(VM)
        self.status = VmStatus.STOPPED
        if not stays:
            self.remove()

    def remove(self) -> None:
        if not self.is_gone:
            for agent in self.agents:
                agent.power_off(VM)
            self.is_gone = True
            self.world.log("removed", self, self.instance_id)
            self.cloud.present.pop((self.name, self.zone), None)

    def _write_audit_log(self) -> None:
        method = "compute.instances." + ("preempted" if self.is_spot else "hostError")
        entry = {
            "logName": log_name("p"),
            "protoPayload": {
                "methodName": method,
                "resourceName": f"projects/p/zones/{self.zone}/instances/{self.name}",
            },
            "resource": {"labels": {"instance_id": self.instance_id, "zone": self.zone}},
            "timestamp": self.world.clock().isoformat(),
        }
        self.cloud.publish(topics.MAINTENANCE, json.dumps(entry).encode(), {})

    def __str__(self) -> str:
        return f"{self.job.job_id}/{self.replica_id}#{self.instance_id}"


class Cloud:
    """Implements `trainmaster.ports.Fleet`."""

    def __init__(self, world: World, job_of: Callable[[str], ExploredJob]) -> None:
        self.world, self.job_of = world, job_of
        self.present: dict[tuple[str, str], ExploredVm] = {}
        self.publish: Callable[[str, bytes, Mapping[str, str]], None] = lambda *_: None
        self.on_delete: Callable[[ExploredVm], None] = lambda _: None
        """Called before the service deletes a VM."""
        self.count = FIRST_ID
        self._requests: dict[str, Callable[[], CreateOutcome]] = {}
        self.empty_zones: set[str] = set()
        """Zones that have no capacity for anybody."""
        self._unreachable_until_s: dict[str, float] = {}
        """By zone."""
        if world.profile.unreachable:
            self._lose_zones()

    def _lose_zones(self) -> None:
        """Google can reach some zones no more, for a while."""
        world = self.world
        for zone in sorted({zone for _, zone in self.present}):
            if world.chance(world.profile.unreachable):
                self._unreachable_until_s[zone] = world.now_s + world.between(UNREACHABLE_S)
                world.log("unreachable", zone)
        if world.has_faults:
            world.after(MINUTE_S, self._lose_zones)

    def _unreachable(self) -> list[str]:
        now_s = self.world.now_s
        zones = self._unreachable_until_s.items()
        return [zone for zone, until_s in zones if until_s > now_s and self.world.has_faults]

    def _reach(self, zone: str) -> None:
        """Raises TemporaryError if Google cannot reach the zone."""
        if zone in self._unreachable():
            raise TemporaryError(f"503 in {zone}")

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        """Return the job's VMs in every zone and its TPU nodes in `tpu_zones`, in any state."""
        del tpu_zones
        lost = self._unreachable()
        vms = [vm for vm in self.present.values() if vm.set_id == job_id]
        listed = [vm.observe() for vm in vms if vm.zone not in lost]
        return complete(listed, [zone for zone in lost if not zones or zone in zones])

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """Return all VMs with any job's label, in every zone and any state, with their creation
        times.
        """
        del zones
        lost = self._unreachable()
        vms = [vm for vm in self.present.values() if vm.zone not in lost]
        listed = [LabelledVm(vm.observe(), job_label(vm.set_id)) for vm in vms]
        return complete(listed, lost)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs of one bulk insert, all or nothing."""
        self._reach(create.zone)
        key = create.request_key(job.job_id)
        if key not in self._requests:
            found = [self.present.get((name, create.zone)) for name in create.names]
            existing = [vm for vm in found if vm is not None]
            if any(vm.generation != create.vm_generation or vm.status not in UP for vm in existing):
                return Pending()
            self._requests[key] = self._refuse(create.zone) or self._insert(job, create, metadata)
        if isinstance(self._requests[key](), Pending):
            self.world.suspend(self.world.between((0.01, INSERT_WAIT_S)))
        return self._requests[key]()

    def _refuse(self, zone: str) -> Callable[[], CreateOutcome] | None:
        world = self.world
        profile = world.profile
        stockout = 1.0 if zone in self.empty_zones else profile.stockout
        for probability, kind, code in (
            (stockout, CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED"),
            (profile.quota, CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED"),
            (profile.internal, CapacityErrorKind.INTERNAL, "INTERNAL_ERROR"),
        ):
            if world.chance(probability):
                refused = NotCreated(kind, code, f"no VM in {zone}")
                return lambda: refused
        return None

    def _insert(
        self, job: Job, create: Create, metadata: Mapping[str, str]
    ) -> Callable[[], CreateOutcome]:
        world = self.world
        profile = world.profile
        names = [name for name in create.names if (name, create.zone) not in self.present]
        if create.partial and len(names) > 1 and world.chance(profile.partial):
            names = names[: world.rng.randrange(1, len(names))]
        explored = self.job_of(job.job_id)
        vms = [ExploredVm(self, explored, create, name, metadata, job.set_id) for name in names]
        for vm in vms:
            if job.plan.limits.cap:
                placed = job.plan.at(job.placement.zone_index)
                price = machine_price(placed, create.group, price_list(), at=create.price)
                vm.per_hour = float(cast("Decimal", price)) * create.group.hosts
            self.present[vm.name, vm.zone] = vm
            explored.note_created(vm)
        done_s = world.now_s + world.between(
            SLOW_CREATE_S if world.chance(profile.slow_create) else CREATE_S
        )
        is_refused = world.chance(profile.stockout_late)
        outcome = (
            NotCreated(CapacityErrorKind.STOCKOUT, "STOCKOUT", "later") if is_refused else Created()
        )

        def finish() -> None:
            for vm in vms:
                if not vm.is_gone and vm.status is VmStatus.CREATING:
                    (vm.remove if is_refused else vm.start)()

        world.after(done_s - world.now_s, finish)
        return lambda: Pending() if world.now_s < done_s else outcome

    def delete(self, vm: Vm) -> bool:
        """Delete the VM by its numeric instance id, so that a newer VM of the same name is never
        deleted.
        """
        self._reach(vm.zone)
        existing = self._find(vm)
        if existing is None:
            return True
        existing.job.note_deleted(existing)
        self.on_delete(existing)
        if existing.status in UP:
            existing.shut_down(self.world.between((2.0, 30.0)), stays=False)
        elif existing.status is VmStatus.STOPPED:
            existing.status = VmStatus.STOPPING
            self.world.within((1.0, 5.0), existing.remove)
        self.world.suspend(self.world.between((0.01, DELETE_WAIT_S)))
        return existing.is_gone

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Write the directive into the VM's metadata, with the metadata fingerprint that `vm` was
        listed with.
        """
        self._reach(vm.zone)
        existing = self._find(vm)
        if existing is None or str(existing.fingerprint) != vm.fingerprint:
            return False
        existing.directive = directive
        existing.fingerprint += 1
        self.world.log(
            "directive", existing, directive.attempt, directive.incarnation, directive.action.value
        )
        for agent in existing.agents:
            agent.wake()
        return True

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to this job: replace its metadata in one write, then its labels."""
        self._reach(hand_over.vm.zone)
        existing = self._find(hand_over.vm)
        if existing is None or str(existing.fingerprint) != hand_over.vm.fingerprint:
            return False
        existing.metadata = metadata
        existing.job = self.job_of(job.job_id)
        existing.job.note_taken(existing)
        return self.write_directive(hand_over.vm, hand_over.create.directive)

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return when the VM's agent last wrote a heartbeat. None: unknown."""
        self._reach(vm.zone)
        existing = self._find(vm)
        if existing is None or not existing.agents:
            return None
        return self.world.clock(
            min(agent.last_beat_s for agent in existing.agents) - self.world.now_s
        )

    def reported_metric(self, vm: Vm) -> str | None:
        """Return what the agent of a trial's VM last wrote about its metric, unchecked: a program
        on the VM may have written it. None: unknown.
        """
        del vm
        return None

    def release(self, job: Job) -> bool:
        """Delete the other resources of an ended job without VMs, such as placement policies."""
        del job
        return True

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Return the serial console output from byte `start` on, and where to continue."""
        del vm
        return "", start

    def _find(self, vm: Vm) -> ExploredVm | None:
        existing = self.present.get((vm.name, vm.zone))
        return existing if existing and existing.instance_id == vm.instance_id else None
