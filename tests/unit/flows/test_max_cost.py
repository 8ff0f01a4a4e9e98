"""`trainmaster.maxCost`: what VMs really existed, at list prices, never costs more.

Shortly before a job has cost that much, all its programs are asked to save; then it is cancelled. A
reserve pays for the save and for the end of the VMs. Without a control plane, Compute Engine
deletes each VM at its time limit, the fuse.

A directive is an order to the agent of a VM: to run the program, to hold, or to stop. The ledger
has the events of a job and the decisions about them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec, a_tuning_spec, change_plan
from tests.support.tuning_jobs import a_tuning_job
from tests.support.world import World
from tests.unit.cost.price_lists import FETCHED_AT, price_list
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.job import Job
from trainmaster.core.model.money import read_money
from trainmaster.core.model.purchase import Spot
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.reconcile.trial_jobs import trial_job
from trainmaster.core.timeouts import COST_RESERVE_S, FUSE_SLACK_S
from trainmaster.cost.cap import spent_at_most
from trainmaster.cost.price_list import PriceList
from trainmaster.errors import PermanentError
from trainmaster.flows import sweep
from trainmaster.ports import CreateOutcome, NotCreated, Pending
from trainmaster_local.memory.fleet import MemoryFleet

MEMBERS = (CHIEF, WORKER_0, WORKER_1)
SHUTDOWN_S = 80.0
"""How long a deleted VM is still billed."""


@dataclass
class BilledFleet(MemoryFleet):
    """A fleet that adds up what its VMs cost, as Compute Engine bills them: from creation until
    they are gone.
    """

    price: dict[bool, float] = field(default_factory=dict)
    """Whether Spot → price per hour."""
    billed: float = 0.0
    """What the VMs that are gone have cost."""
    born: dict[str, tuple[datetime, bool]] = field(default_factory=dict)
    """Instance id of each VM that exists → creation, and whether it is a Spot VM."""
    lifetimes: list[int] = field(default_factory=list)
    """Time limit of the VMs of each request, in seconds."""

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        outcome = super().create(job, create, metadata)
        self.lifetimes.append(job.plan.fuse_s)
        for vm in self.list_vms(job.job_id):
            self.born.setdefault(vm.instance_id, (self.clock(), create.price.is_preemptible))
        return outcome

    def delete(self, vm: Vm) -> bool:
        is_deleted = super().delete(vm)
        self._end(vm.instance_id, SHUTDOWN_S)
        return is_deleted

    def vanish(self, name: str) -> None:
        self._end(self._only(name).instance_id, 0.0)
        super().vanish(name)

    def _end(self, instance_id: str, shutdown_s: float) -> None:
        if instance_id in self.born:
            born_at, spot = self.born.pop(instance_id)
            self.billed += (
                self.price[spot] * ((self.clock() - born_at).total_seconds() + shutdown_s) / 3600
            )

    @property
    def bill(self) -> float:
        running = (
            (self.clock() - at).total_seconds() * self.price[spot]
            for at, spot in self.born.values()
        )
        return self.billed + sum(running) / 3600


def prices_of(cap: Cap) -> dict[bool, float]:
    """Return the price of each replica per hour, by whether its VM is a Spot VM."""
    return {rate.bought == Spot().kind: float(rate.per_hour) for rate in cap.rates}


def priced_world(fleet: BilledFleet | None = None) -> World:
    """Return a world whose price list is a day old."""
    return World(
        fleet=fleet or BilledFleet(), prices=price_list(), now=FETCHED_AT + timedelta(days=1)
    )


def a_world(**extension: object) -> tuple[World, BilledFleet]:
    """Return a job with these fields of its section `trainmaster`, and its fleet."""
    fleet = BilledFleet()
    world = priced_world(fleet)
    world.submit({**a_spec(), "trainmaster": extension})
    world.deliver()
    if cap := world.job.plan.limits.cap:
        fleet.price = prices_of(cap)
    return world, fleet


def next_minute(world: World) -> None:
    """Pass a minute, with its sweep."""
    world.wait(60)
    world.sweep()
    world.deliver()


def test_job_without_faults_is_cancelled_within_the_reserve_of_its_cap() -> None:
    world, fleet = a_world(maxCost="2 USD")
    cap = world.job.plan.limits.cap
    assert cap is not None
    assert float(cap.per_hour) == pytest.approx(3 * prices_of(cap)[False])
    world.report_all_ready()
    while not world.has_ended:
        next_minute(world)
    assert (world.state, world.vms) == ("CANCELLED", ())
    reserve = cap.per_hour * COST_RESERVE_S / 3600
    assert 2 - 2 * reserve < fleet.bill <= 2
    (last,) = [entry for entry in world.ledger if entry.decision.reason is Reason.MAX_COST]
    assert last.decision.text.endswith(" USD of its maxCost, 2 USD: it is cancelled.")
    assert "maximum allowed cost of 2 USD" in (world.job.error_message or "")
    world.sweep()
    world.check()


@pytest.mark.parametrize("seed", range(5))
def test_no_history_costs_more_than_its_cap(seed: int) -> None:
    """Losses, exits, reruns, stockouts and VMs that never report.

    VMs of one machine: all rates are equal.
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    world, fleet = a_world(
        maxCost=f"{rng.uniform(0.4, 0.9):.2f} USD", spot=rng.choice(["none", "all"])
    )
    cap = world.job.plan.limits.cap
    assert cap is not None
    while not world.has_ended:
        # With room for one VM, the chief alone is created.
        room = rng.choice([0, 1, 1]) if rng.random() < 0.2 else 9
        fleet.capacity = dict.fromkeys(world.job.plan.where.zones, room)
        next_minute(world)
        for member in MEMBERS:
            act(world, member, rng)
        assert world.now - world.job.created_at < timedelta(days=60)
    assert fleet.bill <= cap.limit.amount
    assert world.state in ("CANCELLED", "FAILED")
    assert fleet.bill <= spent_at_most(cap, world.ledger, world.now)
    world.check()


def act(world: World, member: ReplicaId, rng: random.Random) -> None:
    """Let something happen to the member: a loss, an exit, a report, or nothing."""
    choice, vm = rng.random(), world.find_vm(member)
    if world.has_ended or vm is None or vm.directive is None:
        return
    if choice < 0.04:
        world.send("maintenance", member, cause="preemption")
    elif choice < 0.05:
        world.fleet.vanish(vm_name(world.job_id, member))
    elif choice < 0.07 and world.replica(member).instance_id:
        world.exit_program(member, 1)
    elif choice < 0.9:
        world.send("vm-ready", member)
    if not world.has_ended:
        world.deliver()


def test_compute_engine_ends_the_bill_without_a_control_plane() -> None:
    world, fleet = a_world(maxCost="2 USD")
    cap = world.job.plan.limits.cap
    assert cap is not None
    assert set(fleet.lifetimes) == {int(2 / cap.per_hour * 3600) + FUSE_SLACK_S}
    world, fleet = a_world()
    assert min(fleet.lifetimes) > 7 * 24 * 3600


def test_vm_that_replaces_another_can_run_only_for_the_rest() -> None:
    world, fleet = a_world(maxCost="2 USD")
    world.report_all_ready()
    while not (cap := world.job.plan.limits.cap) or not cap.spent:
        next_minute(world)
    fleet.vanish(vm_name(world.job_id, WORKER_1))
    next_minute(world)
    rest_s = int((2 - cap.spent) / cap.per_hour * 3600)
    assert fleet.lifetimes[-1] == rest_s + FUSE_SLACK_S
    assert fleet.lifetimes[-1] < fleet.lifetimes[0]
    assert spent_at_most(cap, world.ledger, world.now) > cap.spent > 1.5
    world.check()


def test_no_vm_ends_before_the_job_can_have_cost_its_cap() -> None:
    """A job on Spot VMs may also get on-demand VMs, and costs less as long as it does not."""
    world, fleet = a_world(maxCost="2 USD", spot={"use": "all", "onDemandAfter": 3})
    cap = world.job.plan.limits.cap
    assert cap is not None
    assert float(cap.per_hour) == pytest.approx(3 * prices_of(cap)[False])
    assert min(fleet.lifetimes) > 2 / (3 * prices_of(cap)[True]) * 3600


@dataclass
class OneAfterAnother(BilledFleet):
    """The insert of the workers is pending at first. Then it fails, as do all others."""

    is_pending: bool = True

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        if self.is_pending and create.group.task_type is TaskType.CHIEF:
            return super().create(job, create, metadata)
        return (
            Pending() if self.is_pending else NotCreated(CapacityErrorKind.STOCKOUT, "FULL", "full")
        )


def test_vm_that_an_earlier_delivery_created_is_paid_when_the_gang_moves_on() -> None:
    """The delivery that records the stockout has created nothing itself."""
    fleet = OneAfterAnother()
    world = priced_world(fleet)
    world.submit({**a_spec(), "trainmaster": {"maxCost": "2 USD"}})
    world.deliver()
    cap = world.job.plan.limits.cap
    assert cap is not None
    fleet.is_pending, fleet.price = False, prices_of(cap)
    next_minute(world)
    assert world.job.placement.round > 0
    assert spent_at_most(cap, world.ledger, world.now) >= fleet.bill > 0


def test_ledger_of_a_job_that_waits_is_read_a_few_times_however_long_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, fleet = a_world(maxCost="1 USD")
    checks: list[Decimal] = []

    def compute(cap: Cap, entries: Sequence[LedgerEntry], now: datetime) -> Decimal:
        checks.append(spent_at_most(cap, entries, now))
        return checks[-1]

    monkeypatch.setattr(sweep, "spent_at_most", compute)
    fleet.capacity = dict.fromkeys(world.job.plan.where.zones, 0)
    for member in MEMBERS:
        world.fleet.vanish(vm_name(world.job_id, member))
    for _ in range(90):
        next_minute(world)
    assert not world.has_ended
    assert 0 < len(checks) <= 6
    assert [entry.decision.reason for entry in world.ledger].count(Reason.COST_CHECKED) == len(
        checks
    )


def test_long_setup_counts_before_and_after_its_first_report() -> None:
    """These agents do not report when they started."""
    world, fleet = a_world(maxCost="2 USD")
    cap = world.job.plan.limits.cap
    assert cap is not None
    for _ in range(15):
        next_minute(world)
    assert spent_at_most(cap, world.ledger, world.now) >= fleet.bill > 0.14
    world.report_all_ready()
    assert spent_at_most(cap, world.ledger, world.now) >= fleet.bill


def test_waiting_for_capacity_costs_nothing() -> None:
    fleet = BilledFleet()
    world = priced_world(fleet)
    fleet.capacity = {f"us-central1-{letter}": 0 for letter in "abcdef"}
    world.submit({**a_spec(), "trainmaster": {"maxCost": "1 USD"}})
    world.deliver()
    for _ in range(20):
        next_minute(world)
    assert not world.has_ended
    cap = world.job.plan.limits.cap
    assert cap is not None
    assert spent_at_most(cap, world.ledger, world.now) == 0


@pytest.mark.parametrize(
    ("cap", "prices", "days", "expected"),
    [
        ("25 EUR", price_list(), 1, "the list prices are in USD"),
        ("25 USD", price_list(), 31, "the price list is older than 30 days"),
        ("25 USD", None, 1, "there is no price list"),
        (
            "0.01 USD",
            price_list(),
            1,
            "its machines cost 0.05 USD in the 270 s of their last save and their end",
        ),
    ],
)
def test_cap_that_cannot_be_kept_is_refused(
    cap: str, prices: PriceList | None, days: int, expected: str
) -> None:
    world = World(prices=prices, now=FETCHED_AT + timedelta(days=days))
    with pytest.raises(
        PermanentError, match=f"trainmaster.max_cost Error: cannot be kept: {expected}"
    ):
        world.submit({**a_spec(), "trainmaster": {"maxCost": cap}})
    assert world.store.load(world.job_id) is None


def test_cap_that_is_too_small_for_each_trial_is_refused() -> None:
    world = priced_world()
    with pytest.raises(PermanentError, match="each of 100 trials has machines that cost"):
        world.submit({**a_tuning_spec(maxTrials=100), "trainmaster": {"maxCost": "0.50 USD"}})
    world.submit({**a_tuning_spec(maxTrials=100), "trainmaster": {"maxCost": "6 USD"}})
    assert world.job.plan.limits.cap is not None


def test_trials_share_the_cap_of_their_job() -> None:
    job = a_tuning_job("r", max_trials=6)
    job = replace(job, plan=change_plan(job.plan, cap=Cap(read_money("12 USD"), Decimal(3))))
    assert job.tuning is not None
    assert trial_job(job, job.tuning.trials[0], job.created_at).plan.limits.cap == Cap(
        read_money("2 USD"), Decimal(3)
    )


def until_near_the_cap(spec: Mapping[str, object], extension: Mapping[str, object]) -> World:
    """Return the world of a running job whose programs have just been asked to save."""
    fleet = BilledFleet()
    world = priced_world(fleet)
    world.submit({**spec, "trainmaster": {"maxCost": "2 USD", **extension}})
    world.deliver()
    cap = world.job.plan.limits.cap
    assert cap is not None
    fleet.price = prices_of(cap)
    world.report_all_ready()
    while not (world.has_ended or world.job.round.ends_job):
        next_minute(world)
    return world


ROUTINE = (Reason.COST_CHECKED, Reason.READY)


def reasons(world: World) -> list[Reason]:
    """Return the reasons of all decisions but those that every job has."""
    found = [entry.decision.reason for entry in world.ledger]
    return [reason for reason in found if reason not in ROUTINE]


def test_members_save_together_before_the_job_is_cancelled() -> None:
    """The primary's agent asks all through the channel.

    The job ends when the last one has saved, not the first.
    """
    world = until_near_the_cap(a_spec(), extension={})
    found = [world.vm(member).directive for member in MEMBERS]
    primary, *others = [(order.action.value, order.asks_peers) for order in found if order]
    assert primary == ("save", True)
    assert others == [("run", False), ("run", False)]
    world.sweep()
    world.deliver()
    world.silent = {WORKER_1}
    for _ in range(2):  # every event may come twice
        world.send("replica-exit", WORKER_0, cause="saved", exit_status=0)
        world.deliver()
    assert (world.state, len(world.vms), world.job.round.is_held) == ("RUNNING", 3, True), (
        "the second worker saves"
    )
    assert isinstance(world.fleet, BilledFleet)
    world.silent = set()
    next_minute(world)
    assert (world.state, world.vms, world.fleet.bill < 2) == ("CANCELLED", (), True)
    assert reasons(world)[-3:] == [Reason.MEMBERS_SAVE, Reason.SAVED, Reason.MAX_COST]
    assert "maximum allowed cost of 2 USD" in (world.job.error_message or "")
    world.check()


@pytest.mark.parametrize(
    ("spec", "extension", "asked"),
    [
        (a_spec(workerCount=0, workerType=None), {}, ["save"]),
        (a_spec(), {"independentReplicas": True}, ["save"] * 3),
        (a_spec(), {"saveOnNotice": "replica"}, ["save"] * 3),
        (a_spec(), {"saveOnNotice": "off"}, []),
    ],
)
def test_replicas_that_save_alone_are_asked_by_directives(
    spec: Mapping[str, object], extension: Mapping[str, object], asked: list[str]
) -> None:
    world = until_near_the_cap(spec, extension)
    assert [vm.directive.action.value for vm in world.vms if vm.directive] == asked
    for member in MEMBERS[: len(asked)]:
        if not world.has_ended:  # members of a round stop when the first one has saved
            world.send("replica-exit", member, cause="saved", exit_status=0)
            world.deliver()
    assert world.has_ended != ("independentReplicas" in extension)
    assert not any(replica.restarts_used for replica in world.replicas)
    while not world.has_ended:
        next_minute(world)
    assert (world.state, reasons(world)[-1], world.vms) == ("CANCELLED", Reason.MAX_COST, ())
    world.check()


def test_machine_that_has_reported_costs_while_rerun_after_rerun_waits_for_it() -> None:
    world, fleet = a_world(
        maxCost="50 USD", restartJobOnWorkerRestart=True, independentReplicas=True
    )
    world.report_all_ready()
    for _ in range(9):
        world.wait(1100)
        world.send("maintenance", WORKER_1, cause="preemption")
        fleet.vanish(world.vm(WORKER_1).name)
        world.deliver()
        for replica_id in (CHIEF, WORKER_1):
            world.send("vm-ready", replica_id)
        world.deliver()
    world.wait(900)
    cap = world.job.plan.limits.cap
    assert cap is not None
    assert world.job.attempt == 10
    assert spent_at_most(cap, world.ledger, world.now) >= fleet.bill
