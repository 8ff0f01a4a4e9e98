"""Each event of a machine set beside each other one: two functions that have read the same state.

The second event happens before each commit of the first one, which has read the state by then, and
after all of it. Then the sweep and the agents do the rest. Jobs, machine sets and their holders are
explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from itertools import pairwise, product
from typing import Any, Final

import pytest

from tests.support.kept_jobs import KEPT_S, OWNER, a_keeping_spec, other, run_job, succeed
from tests.support.world import World
from trainmaster.core.events import Deadline, DeadlinePassed
from trainmaster.core.model.machine_set import KeptVm, MachineSet, ReleaseCause, SetState
from trainmaster.core.model.members import is_ready
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit.record import record
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import cancel_job, delete_job, release_machines
from trainmaster_local.memory.bus import MemoryBus

WORKER: Final = ReplicaId(TaskType.WORKER, 0)
MINUTES: Final = 3
"""Sweeps after both events: a request that has met a lease is repeated by the next one."""


@dataclass
class Scene:
    """A job that keeps its machines, and the next one, which may take them."""

    first: World
    second: World
    """Nothing is stored of it before it is submitted."""
    vms: Mapping[ReplicaId, Vm]
    """The first job's VMs as they were before the events."""
    lost: set[str] = field(default_factory=set)
    """Instance ids of VMs whose loss was reported."""

    def copy(self) -> Scene:
        """Return an independent scene in which the same has happened."""
        parts: dict[str, Any] = {
            "store": self.first.store.copy(),
            "fleet": self.first.fleet.copy(),
            "bus": MemoryBus(),
        }
        first, second = (
            World(world.job_id, world.now, taken_set_id=world.taken_set_id, **parts)
            for world in (self.first, self.second)
        )
        return Scene(first, second, self.vms)

    def wait(self, seconds: float) -> None:
        """Move the time of both jobs, which is then the same."""
        now = max(self.first.now, self.second.now) + timedelta(seconds=seconds)
        self.first.now = self.second.now = now
        self.first.fleet.clock = lambda: now

    def submitted(self) -> tuple[World, ...]:
        """Return the jobs that exist."""
        worlds = (self.first, self.second)
        return tuple(world for world in worlds if world.store.load(world.job_id))

    def machine_set(self) -> MachineSet | None:
        """Return the set that the first job has created, whoever holds it."""
        loaded = self.first.store.load("first")
        assert loaded is not None
        return loaded.state.machine_set


def report(scene: Scene, replica_id: ReplicaId, kind: str, **more: object) -> None:
    """Let the agent report what happened before any of the events."""
    scene.first.send_about(scene.vms[replica_id], kind, **more)


def exit_of_primary(scene: Scene) -> None:
    report(scene, scene.first.job.plan.primary, "replica-exit", cause="process", exit_status=0)


def exit_of_worker(scene: Scene) -> None:
    report(scene, WORKER, "replica-exit", cause="process", exit_status=0)


def failure_of_worker(scene: Scene) -> None:
    report(scene, WORKER, "replica-exit", cause="process", exit_status=1)


def ready_worker(scene: Scene) -> None:
    report(scene, WORKER, "vm-ready")


def maintenance(scene: Scene) -> None:
    """The VM still runs: Google ends it within an hour."""
    scene.lost.add(scene.vms[WORKER].instance_id)
    report(scene, WORKER, "maintenance", cause="maintenance")


def unfit_worker(scene: Scene) -> None:
    """The preflight before another start of the program has found a fault of the machine."""
    scene.lost.add(scene.vms[WORKER].instance_id)
    report(scene, WORKER, "replica-exit", cause="unfit", exit_status=1, tail="a GPU has errors")


def failed_setup_of_worker(scene: Scene) -> None:
    scene.lost.add(scene.vms[WORKER].instance_id)
    report(scene, WORKER, "replica-exit", cause="setup", exit_status=1, tail="the disk is full")


def vanished_vm(scene: Scene) -> None:
    """Only a listing shows the loss."""
    vm = scene.vms[WORKER]
    scene.lost.add(vm.instance_id)
    current = scene.first.find_vm(WORKER)
    if current is not None and current.instance_id == vm.instance_id:
        scene.first.fleet.vanish(vm.name)
    scene.first.provision()


def provision(scene: Scene) -> None:
    scene.first.provision()


def sweep(scene: Scene) -> None:
    scene.first.sweep()


def take(scene: Scene) -> None:
    """The next job is submitted, and takes the machines if they are kept."""
    scene.second.submit(a_keeping_spec(), source=OWNER)
    scene.second.provision()


def cancel(scene: Scene) -> None:
    cancel_job("first", "anna", scene.first.deps)


def delete(scene: Scene) -> None:
    delete_job("first", "request", scene.first.deps, by="anna")


def release(scene: Scene) -> None:
    release_machines("first", scene.first.deps, by="anna")


def release_for_another(scene: Scene) -> None:
    for loaded in scene.first.store.kept_machines():
        kept_machines.release(loaded.machine_set, ReleaseCause.CAPACITY, scene.first.deps, "third")


def end_of_kept_time(scene: Scene) -> None:
    scene.wait(KEPT_S + 1)
    for vm in scene.first.vms:
        scene.first.fleet.beat(vm.name)
    scene.first.provision()


def deadline(scene: Scene) -> None:
    """The job ends, and keeps nothing."""
    record(DeadlinePassed("first", Deadline.RUNNING, scene.first.now), scene.first.deps)


Event = Callable[[Scene], None]
EVENTS: Final[tuple[Event, ...]] = (
    exit_of_primary,
    exit_of_worker,
    failure_of_worker,
    ready_worker,
    maintenance,
    unfit_worker,
    failed_setup_of_worker,
    vanished_vm,
    provision,
    sweep,
    take,
    cancel,
    delete,
    release,
    release_for_another,
    end_of_kept_time,
    deadline,
)


@cache
def scene_of(*, is_independent: bool, has_ended: bool) -> Scene:
    """Return the scene before the events. Not to be changed: each test copies it."""
    first = World("first")
    run_job(first, a_keeping_spec(independentReplicas=is_independent))
    vms = {vm.replica_id: vm for vm in first.vms}
    if has_ended:
        succeed(first)
    for vm in first.vms:
        first.fleet.beat(vm.name)
    first.bus.drain()
    return Scene(first, other(first, "second"), vms)


def act(scene: Scene, event: Event) -> None:
    """Deliver the event, and once more if its function asks for that."""
    scene.wait(1)
    try:
        event(scene)
    except TemporaryError:
        scene.wait(10)
        event(scene)
    scene.wait(0)


def before_commit(number: int, scene: Scene, action: Callable[[], None]) -> Callable[[], int]:
    """Run the action before this commit, counted from 0. Return what counts the commits."""
    commit = scene.first.store.commit
    commits = 0

    def commit_after_action(*arguments: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == number + 1:
            action()
        commit(*arguments)

    vars(scene.first.store)["commit"] = commit_after_action
    return lambda: commits


def interleavings(start: Scene, one: Event, other_event: Event) -> Iterator[Scene]:
    """Yield the scenes after both events: the other one before each commit of this one, and after
    all of it.
    """
    number = 0
    while True:
        scene = start.copy()
        count = before_commit(number, scene, partial(act, scene, other_event))
        act(scene, one)
        is_after = count() <= number
        if is_after:
            act(scene, other_event)
        del vars(scene.first.store)["commit"]
        yield scene
        if is_after:
            return
        number += 1


def settle(scene: Scene) -> None:
    """Let the sweep and the agents do what is left."""
    for _ in range(MINUTES):
        for listed in scene.first.fleet.list_all():
            scene.first.fleet.beat(listed.vm.name)
        scene.first.sweep()
        for world in scene.submitted():
            world.deliver()
            world.taken_set_id = world.job.set_id
            report_ready(world)
            world.deliver()
        scene.wait(61)


def report_ready(world: World) -> None:
    """Let the agents of a live job report that are not known to be ready."""
    for replica in () if world.has_ended else world.replicas:
        if world.find_vm(replica.replica_id) and not is_ready(world.job, replica):
            world.send("vm-ready", replica.replica_id)


def check(scene: Scene) -> None:
    """Check what is true of a set, whatever has happened."""
    for world in scene.submitted():
        world.check()
        assert world.has_ended or world.state == "RUNNING"
    machines = scene.machine_set()
    vms = {vm.instance_id for vm in scene.first.vms}
    if machines is None:
        return
    check_periods(machines)
    if machines.state is SetState.RELEASED:
        assert not vms, "VMs of a released set"
    if machines.state is SetState.IN_USE:
        assert not {"first": scene.first, "second": scene.second}[machines.holder].has_ended
    if machines.state is SetState.KEPT:
        check_kept(scene, machines)


def check_kept(scene: Scene, machines: MachineSet) -> None:
    """Check that the VMs of the set are those that run, and that nobody has lost."""
    running = {vm.instance_id for vm in scene.first.vms if vm.status is VmStatus.RUNNING}
    kept = {vm.instance_id for vm in machines.vms}
    assert kept, "an empty set is kept"
    assert kept == running
    assert not kept & scene.lost, "a lost VM is kept"
    counts = [group.count for group in machines.groups]
    assert sum(counts) == len(kept)


def check_end(scene: Scene) -> None:
    """End both jobs, and check that nothing is left of them."""
    assert len(scene.second.vms) == len(scene.second.job.plan.replica_ids)
    for world in (scene.first, scene.second):
        cancel_job(world.job_id, "anna", world.deps)
    settle(scene)
    scene.wait(KEPT_S)
    settle(scene)
    machines = scene.machine_set()
    if machines is not None:
        assert machines.state is SetState.RELEASED
        check_periods(machines)
    assert not scene.first.fleet.list_all()


def check_periods(machines: MachineSet) -> None:
    """Check that no time of a VM is paid twice."""
    periods: dict[KeptVm, list[tuple[Any, Any]]] = defaultdict(list)
    for period in machines.kept_periods:
        for vm in period.vms:
            periods[vm].append((period.began_at, period.ended_at))
    for times in periods.values():
        for (_, end), (begin, _) in pairwise(sorted(times)):
            assert end <= begin


FAULTS: Final = {unfit_worker, failed_setup_of_worker}
EXITS: Final = FAULTS | {exit_of_worker, failure_of_worker}


def both_happen(one: Event, other_event: Event) -> bool:
    """Whether both events can be reported: a program that has ended was not refused its machine."""
    pair = {one, other_event}
    return len(pair) == 1 or not (pair & FAULTS and pair <= EXITS)


QUICK: Final = ((exit_of_primary, False), (maintenance, False), (exit_of_primary, True))
"""Events beside which losses and takes are most likely to be missed, and whether the first job has
ended.
"""


def cases() -> list[object]:
    """Return a row for each event and each scene before it."""
    rows: list[object] = []
    for one, is_independent, has_ended in product(EVENTS, (True, False), (False, True)):
        is_quick = is_independent and (one, has_ended) in QUICK
        heavy = pytest.mark.heavy(
            fact="all events of kept machines commute with each other",
            quick="the same test with the ends and losses of replicas that are judged alone",
        )
        alone = "judged alone" if is_independent else "members"
        scene = "has ended" if has_ended else "runs"
        row = pytest.param(
            one,
            is_independent,
            has_ended,
            id=f"{one.__name__}: {alone}, first job {scene}",
            marks=() if is_quick else heavy,
        )
        rows.append(row)
    return rows


@pytest.mark.parametrize(("one", "is_independent", "has_ended"), cases())
def test_event_beside_each_other_one(one: Event, is_independent: bool, has_ended: bool) -> None:
    start = scene_of(is_independent=is_independent, has_ended=has_ended)
    for other_event in EVENTS:
        if not both_happen(one, other_event):
            continue
        for number, scene in enumerate(interleavings(start, one, other_event)):
            try:
                settle(scene)
                check(scene)
                if scene.second not in scene.submitted():
                    act(scene, take)
                    settle(scene)
                    check(scene)
                check_end(scene)
            except AssertionError as error:
                when = f"{other_event.__name__} before commit {number} of {one.__name__}"
                raise AssertionError(f"{when}: {error}") from error
