"""Jobs with alternatives in seeded weather, with random losses of VMs: invariants over what the
cloud has seen. A candidate is a zone with the machines and the pricing of one alternative; a pass
requests the candidates one after another until one has capacity.

(a) a replica has no two VMs that were requested for its current generation
(b) the VMs of a gang that is ready are in one zone, of one machine per role
(c) no request while an earlier operation of the job is open elsewhere
(d) a pass requests no candidate twice, and leaves none out that is eligible
(e) folding the ledger gives the stored state (`World.check`)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.jobs import START, a_spec
from tests.support.world import World
from trainmaster.core.actions import ContinueProvisioning
from trainmaster.core.events import CapacityErrorKind, VmsNotCreated
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.timeouts import CAPACITY_FRESH, USEFUL_LIFE_MIN
from trainmaster.ports import CreateOutcome, NotCreated, Pending
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.simulator.weather import Climate, Weather

SWEEPS = 60
ALTERNATIVES = [
    {"zones": ["us-central1-a", "us-central1-b"], "spot": "all"},
    {"regions": ["us-east1"], "machineSpec": {"machineType": "n1-standard-8"}, "spot": "all"},
    {"zones": ["us-central1-a"], "spot": "none", "after": "600s"},
    {
        "zones": ["us-central1-b"],
        "machineSpec": {"machineType": "n1-standard-16"},
        "env": {"BATCH": "16"},
    },
]


@dataclass
class AlternativesFleet(MemoryFleet):
    """A fleet with the weather's capacity, slow operations and used-up quotas."""

    weather: Weather = field(default_factory=lambda: Weather(0, Climate.SCARCE))
    rng: random.Random = field(default_factory=random.Random)
    world: World | None = None
    machines: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    """VM name and generation → zone and machine type."""
    open_in: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Names of a pending request → zone and request key."""

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        assert self.world is not None
        assert {zone for zone, _ in self.open_in.values()} <= {create.zone}, "(c)"
        assert f'"zone":"{create.zone}"' in metadata["trainmaster-vm-config"]
        assert (job.plan.where.region, job.plan.where.options) == (
            create.zone.rpartition("-")[0],
            (),
        )
        names = ",".join(create.names)
        if names not in self.open_in and self.rng.random() < 0.1:
            self.open_in[names] = (create.zone, create.request_key(job.job_id))
            return Pending()
        self.open_in.pop(names, None)
        now_s = (self.world.now - START).total_seconds()
        if self.weather.room(create.zone, now_s, spot=create.price.is_preemptible) < len(
            create.names
        ):
            is_quota = self.rng.random() < 0.1
            kind = CapacityErrorKind.QUOTA if is_quota else CapacityErrorKind.STOCKOUT
            return NotCreated(kind, kind.upper(), "no capacity")
        outcome = super().create(job, create, metadata)
        for name in create.names:
            self.machines[name, create.vm_generation] = (create.zone, create.group.machine_type)
        return outcome


def lose_vms(world: World, rng: random.Random) -> None:
    """Preempt one VM, or all."""
    running = [
        replica.replica_id for replica in world.replicas if replica.state is ReplicaState.RUNNING
    ]
    present = [replica_id for replica_id in running if world.find_vm(replica_id)]
    world.wait(USEFUL_LIFE_MIN.total_seconds() * rng.choice((0.1, 1.1)))
    for replica_id in present if rng.random() < 0.5 else present[:1]:
        world.send("maintenance", replica_id, cause="preemption")


def check_gang(world: World, fleet: AlternativesFleet) -> None:
    current = {replica.replica_id: replica for replica in world.replicas}
    vms = [vm for vm in world.vms if vm.vm_generation == current[vm.replica_id].vm_generation]
    assert len({vm.name for vm in vms}) == len(vms), "(a)"
    if world.job.state is JobState.RUNNING and all(
        r.state is ReplicaState.RUNNING for r in current.values()
    ):
        placed = {fleet.machines[vm.name, vm.vm_generation] for vm in vms}
        assert len(placed) == 1, "(b): all roles of this job have the same machine"
        machine = world.job.placed.plan.groups[0].machine_type
        assert placed == {(world.job.zone, machine)}


def check_passes(world: World) -> None:
    """Check (d) for all passes before RUNNING."""
    requested: list[int] = []
    for entry in world.ledger:
        action = entry.decision.action
        event = entry.event
        if not isinstance(event, VmsNotCreated) or not isinstance(action, ContinueProvisioning):
            continue
        if action.remaining is None:  # a part of the gang runs, and waits here
            continue
        assert action.zone_index not in action.remaining
        assert len(set(action.remaining)) == len(action.remaining)
        if event.outlook and action.next_at:
            eligible = {
                number
                for number, prospect in enumerate(event.outlook)
                if world.job.plan.where.options[
                    world.job.plan.where.candidates[number].option
                ].after_s
                == 0
                and not (
                    prospect.failed_at and action.next_at - prospect.failed_at < CAPACITY_FRESH
                )
            }
            assert eligible <= {action.zone_index, *action.remaining}
            requested.append(len(action.remaining))
    assert requested or world.job.state is JobState.RUNNING


def run(seed: int) -> set[int]:
    """Return the candidates that the job was requested as, after an hour in seeded weather."""
    rng = random.Random(f"alternatives/{seed}")  # noqa: S311 - chance keeps no secret
    fleet = AlternativesFleet(
        weather=Weather(seed, (Climate.SCARCE, Climate.FAMINE)[seed % 2]), rng=rng
    )
    world = World(fleet=fleet)
    fleet.world = world
    extension = {"placement": {"ordered": ALTERNATIVES}, "independentReplicas": bool(seed % 3)}
    world.submit({**a_spec(), "trainmaster": extension})
    candidates = set()
    for _ in range(SWEEPS):
        world.deliver()
        check_gang(world, fleet)
        if world.has_ended:
            break
        for replica in world.replicas:
            vm = world.find_vm(replica.replica_id)
            if (
                replica.awaits_vm
                and vm
                and vm.vm_generation == replica.vm_generation
                and not fleet.open_in
            ):
                world.send("vm-ready", replica.replica_id)
        candidates.add(world.job.placement.zone_index)
        if world.job.state is JobState.RUNNING and rng.random() < 0.1:
            lose_vms(world, rng)
        world.wait(60)
        world.provision()
    world.deliver()
    check_passes(world)
    world.check()
    return candidates


def test_job_with_alternatives_keeps_its_invariants_in_any_weather() -> None:
    candidates = [run(seed) for seed in (0, 2, 3, 4)]
    assert len(set.union(*candidates)) > len(ALTERNATIVES)
    assert max(map(len, candidates)) > len(ALTERNATIVES) // 2, "some jobs move several times"
