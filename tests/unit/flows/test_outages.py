"""Ten minutes in which Google cannot be reached or refuses calls, while a job runs.

No VM is lost, doubled or left behind, and the job goes on.

The ledger has the events of a job and the decisions about them. An orphan is a VM without a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.support.jobs import CHIEF, START, WORKER_0, a_spec
from tests.support.world import World
from tests.unit.flows.sweep_helpers import make_orphans, orphan_vms, search_orphans, sweep
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CancelRequested, CapacityErrorKind, VmsOutOfReach
from trainmaster.core.events.job_events import CAUSES_MAX
from trainmaster.core.reporting.explain import shown_entries
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.flows.commit.record import record
from trainmaster.ports import NotCreated, ZonesUnreachableError
from trainmaster_local.memory.fleet import MemoryFleet

ZONES: Final = ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f")
CALLS: Final = ("list_vms", "list_all", "create", "delete", "write_directive", "last_heartbeat")
REFUSED: Final = (
    "Google refuses the call, which an operator can repair: 403: compute.instances.list"
)
RECOVERY_MIN: Final = 16
"""Minutes in which a job recovers from an outage: a VM may be given up only after 15 of them."""
BLOCKED: Final = NotCreated(CapacityErrorKind.BLOCKED, "403", "compute.instances.create")

Outage = Callable[[pytest.MonkeyPatch, MemoryFleet], None]
"""Begins an outage of this fleet, which ends with the patch."""


def unreachable(*zones: str) -> Outage:
    return lambda patch, fleet: patch.setattr(fleet, "unreachable_zones", set(zones))


def failing(error: type[Exception], *calls: str) -> Outage:
    def fail(*_: Any, **__: Any) -> Any:
        raise error(REFUSED)

    def begin(patch: pytest.MonkeyPatch, fleet: MemoryFleet) -> None:
        for call in calls:
            patch.setattr(fleet, call, fail)

    return begin


def without_nodes(patch: pytest.MonkeyPatch, fleet: MemoryFleet) -> None:
    """Cloud TPU answers nothing: its nodes are left out of the list of all jobs' VMs."""

    def list_vms(*_: Any, **__: Any) -> Any:
        raise ZonesUnreachableError(listed=(), zones=ZONES[:1])

    patch.setattr(fleet, "list_vms", list_vms)
    patch.setattr(fleet, "list_all", lambda *_: ())


OUTAGES: Final[Mapping[str, Outage]] = {
    "a zone": unreachable(ZONES[0]),
    "all zones of the region": unreachable(*ZONES),
    "the API answers nothing": failing(TemporaryError, *CALLS),
    "the API is disabled": failing(RefusedError, *CALLS),
    **{f"{call} is refused": failing(RefusedError, call) for call in CALLS},
    "inserts are blocked": lambda patch, fleet: patch.setattr(fleet, "create", lambda *_: BLOCKED),
}


def deliver_for_ten_minutes(world: World) -> None:
    """Run the sweep and the search for orphans each minute. Those that fail are repeated by the
    next ones.
    """
    for _ in range(10):
        for step in (sweep, search_orphans):
            with suppress(TemporaryError):
                step(world)


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES.keys())
@pytest.mark.parametrize("is_vm_lost", [False, True], ids=["all VMs run", "a VM is lost"])
def test_job_goes_on_after_an_outage_of_ten_minutes(
    running: World, monkeypatch: pytest.MonkeyPatch, outage: Outage, *, is_vm_lost: bool
) -> None:
    before = {vm.name: vm for vm in running.vms}
    if is_vm_lost:
        running.fleet.vanish(running.vm(WORKER_0).name)
    with monkeypatch.context() as patch:
        outage(patch, running.fleet)
        deliver_for_ten_minutes(running)
        assert running.state == "RUNNING"
    running.fleet.unreachable_zones = set()
    sweep(running, times=RECOVERY_MIN)
    after = {vm.name: vm for vm in running.vms}
    assert after.keys() == before.keys()
    replaced = {name for name in after if after[name].instance_id != before[name].instance_id}
    assert replaced == ({running.vm(WORKER_0).name} if is_vm_lost else set())
    assert running.job.attempt == 1
    running.check()


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES.keys())
def test_nothing_is_left_of_a_job_that_is_cancelled_in_an_outage(
    running: World, monkeypatch: pytest.MonkeyPatch, outage: Outage
) -> None:
    make_orphans(running)
    with monkeypatch.context() as patch:
        outage(patch, running.fleet)
        record(CancelRequested("digits_1", "me", running.now), running.deps)
        deliver_for_ten_minutes(running)
    running.fleet.unreachable_zones = set()
    sweep(running, times=RECOVERY_MIN)
    assert (running.vms, orphan_vms(running)) == ((), ())


@pytest.mark.parametrize(
    ("outage", "words"),
    [
        (
            OUTAGES["a zone"],
            "Google cannot reach us-central1-a: changes of this job's VMs wait until that ends.",
        ),
        (OUTAGES["list_all is refused"], f"{REFUSED}: changes"),
        (OUTAGES["list_vms is refused"], f"{REFUSED}: changes"),
        (
            without_nodes,
            "Google cannot reach us-central1-a: changes of this job's VMs wait until that ends.",
        ),
    ],
)
def test_why_of_a_running_job_says_once_an_hour_that_its_vms_are_out_of_reach(
    running: World, monkeypatch: pytest.MonkeyPatch, outage: Outage, words: str
) -> None:
    running.fleet.vanish(running.vm(CHIEF).name)
    with monkeypatch.context() as patch:
        outage(patch, running.fleet)
        for _ in range(13):  # a little more than two hours
            deliver_for_ten_minutes(running)
    texts = [
        entry.decision.text
        for entry, _ in shown_entries(running.ledger, None, everything=False)
        if entry.decision.reason is Reason.OUT_OF_REACH
    ]
    assert [text.startswith(words) for text in texts] == [True] * len(texts)
    assert 3 <= len(texts) <= 4
    *_, last = next_steps(running.job, running.replicas, running.ledger)
    is_last = running.ledger[-1].decision.reason is Reason.OUT_OF_REACH
    assert is_last == (last.startswith("This has to end, last seen at ") and words in last)


def test_why_names_each_cause_of_an_hour(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running.fleet.vanish(running.vm(CHIEF).name)
    for outage in (OUTAGES["list_vms is refused"], without_nodes):
        with monkeypatch.context() as patch:
            outage(patch, running.fleet)
            deliver_for_ten_minutes(running)
    *_, first, second = next_steps(running.job, running.replicas, running.ledger)
    assert first.startswith("This has to end, last seen at ")
    assert REFUSED in first
    assert "Google cannot reach us-central1-a" in second


@pytest.mark.parametrize(
    ("problem", "is_same"),
    [
        ("direct tm-x-worker-0: Google refuses: 403: instances/tm-x-worker-0", True),
        ("direct tm-x-worker-12: Google refuses: 403: instances/tm-x-worker-12", True),
        ("delete tm-x-worker-0: Google refuses: 403: instances/tm-x-worker-0", False),
        ("Google cannot reach us-central1-a", False),
    ],
)
def test_causes_are_equal_whatever_replica_they_name(problem: str, *, is_same: bool) -> None:
    first = VmsOutOfReach(
        "x", "direct tm-x-worker-7: Google refuses: 403: instances/tm-x-worker-7", START
    )
    assert (VmsOutOfReach("x", problem, START).key == first.key) == is_same
    assert VmsOutOfReach("x", first.problem, START + timedelta(hours=1)).key != first.key


def test_number_of_causes_is_bounded() -> None:
    keys = {
        VmsOutOfReach("x", "error " + chr(256 + number), START).key
        for number in range(5 * CAUSES_MAX)
    }
    assert CAUSES_MAX / 2 < len(keys) <= CAUSES_MAX


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES.keys())
@pytest.mark.parametrize("is_vm_lost", [False, True], ids=["all nodes run", "a node is lost"])
def test_slices_go_on_after_an_outage_of_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, outage: Outage, *, is_vm_lost: bool
) -> None:
    world = World()
    slices = {"acceleratorConfig": {"type": "TPU_V3", "count": 8}}
    roles = {
        "masterType": "cloud_tpu",
        "masterConfig": slices,
        "workerType": "cloud_tpu",
        "workerConfig": slices,
    }
    world.submit(a_spec(**roles, runtimeVersion="2.11", pythonVersion="3.7"))
    world.deliver()
    world.report_all_ready()
    world.deliver()
    before = {vm.name: vm.instance_id for vm in world.vms}
    if is_vm_lost:
        world.fleet.vanish(world.vm(WORKER_0).name)
    with monkeypatch.context() as patch:
        outage(patch, world.fleet)
        deliver_for_ten_minutes(world)
        assert world.state == "RUNNING"
    world.fleet.unreachable_zones = set()
    sweep(world, times=RECOVERY_MIN)
    after = {vm.name: vm.instance_id for vm in world.vms}
    assert after.keys() == before.keys()
    replaced = {name for name in after if after[name] != before[name]}
    assert replaced == ({world.vm(WORKER_0).name} if is_vm_lost else set())


def test_job_that_moves_on_to_another_zone_has_no_such_entry(world: World) -> None:
    world.fleet.unreachable_zones = {ZONES[0]}
    world.submit()
    world.deliver()
    sweep(world, times=3)
    assert Reason.OUT_OF_REACH not in {entry.decision.reason for entry in world.ledger}
