"""Provisioning requests: the cost of a repeated one, which of several does the work, and when one
is sent again.

An event of a job orders something, such as another VM: its ledger entry is pending until that has
happened. The request names the entry. Its delivery takes the lease of the job, and does the work in
cycles, each of which lists the VMs and executes steps. A delivery that meets the lease ends,
because the holder does its work, too.

An incarnation is one execution of a replica's program. A directive is an order to the agent of a
VM: to run the program, to hold, or to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bench.counting import Counts, counting_fleet, counting_store
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.steps import Create
from trainmaster.errors import TemporaryError
from trainmaster.flows import provision
from trainmaster.flows.provisioning import reconciliation
from trainmaster.flows.provisioning.delivery import DELIVERY_S, LEASE_S, REQUESTS_MAX
from trainmaster.flows.provisioning.reconciliation import CYCLES_MAX
from trainmaster.messaging import internal_requests, topics
from trainmaster.messaging.internal_requests import AdmissionPass, OrphanSearch, ProvisionRequest
from trainmaster.ports import CreateOutcome, Loaded, Pending, PendingEntries
from trainmaster_local.memory.fleet import MemoryFleet

LATE = timedelta(minutes=35)
"""A request waits that long if ten thousand jobs start at once (docs/scale.md)."""


def requests(world: World) -> list[ProvisionRequest]:
    """Take the requests that were published about jobs."""
    messages = [message for message in world.bus.drain() if message.topic == topics.PROVISION]
    decoded = [internal_requests.decode_provision(message.data) for message in messages]
    return [request for request in decoded if isinstance(request, ProvisionRequest)]


def handle(world: World, request: ProvisionRequest) -> Counts:
    """Handle the request, and return what it cost."""
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    fleet_deps = replace(world.fleet_deps, fleet=counting_fleet(world.fleet, counts))
    provision.handle(request, fleet_deps, deps)
    return counts


def lease(world: World, holder: str = "") -> object:
    """Take the lease, as the delivery of this message does. Return None if another one has it."""
    return world.store.take_lease(
        "digits_1", world.now, world.now + timedelta(seconds=LEASE_S), holder
    )


def test_request_names_the_ledger_entry_it_is_for(running: World) -> None:
    running.kill(WORKER_0)
    (request,) = requests(running)
    assert request.job_id == "digits_1"
    assert request.entry_key in running.store.pending_keys("digits_1")


def test_request_for_a_done_entry_costs_one_read(running: World) -> None:
    running.kill(WORKER_0)
    (request,) = requests(running)
    handle(running, request)
    assert running.store.pending_keys("digits_1") == ()
    repeated = handle(running, request)
    assert (repeated.reads, dict(repeated.calls)) == (1, {"is_pending": 1})


def directed_incarnation(world: World, replica_id: ReplicaId) -> int | None:
    """Return the incarnation that the replica's VM is directed to run."""
    directive = world.vm(replica_id).directive
    return directive.incarnation if directive else None


def test_request_beside_another_delivery_of_the_job_costs_two_reads(running: World) -> None:
    running.kill(WORKER_0)
    (request,) = requests(running)
    assert lease(running)
    counts = handle(running, request)
    assert (counts.reads, counts.calls["list_vms"]) == (2, 0)
    assert running.store.pending_keys("digits_1"), "the holder of the lease has not confirmed it"


def test_event_during_a_delivery_is_provisioned_by_that_delivery(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second exit is committed, and its request ends at the lease, while the first one's
    directive is written.
    """
    world = running
    world.kill(WORKER_0)
    (first,) = requests(world)
    write = world.fleet.write_directive
    seconds: list[Counts] = []

    def write_beside_an_exit(*args: object) -> bool:
        if not seconds:
            seconds.append(Counts())
            world.kill(WORKER_1)
            (second,) = requests(world)
            seconds[0] = handle(world, second)
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(world.fleet, "write_directive", write_beside_an_exit)
    handle(world, first)
    assert seconds[0].reads == 2
    assert world.store.pending_keys("digits_1") == ()
    assert [directed_incarnation(world, replica_id) for replica_id in (WORKER_0, WORKER_1)] == [
        2,
        2,
    ]


def test_event_after_the_last_listing_is_provisioned_by_that_delivery(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second exit is committed after the state that needs no step was read, and before the
    entries are read.
    """
    world = running
    world.kill(WORKER_0)
    (first,) = requests(world)
    pending_entries = world.store.pending_entries
    killed: list[bool] = []

    def after_an_exit(loaded: Loaded) -> PendingEntries:
        if not killed:
            killed.append(True)
            world.kill(WORKER_1)
            (second,) = requests(world)
            handle(world, second)
        return pending_entries(loaded)

    monkeypatch.setattr(world.store, "pending_entries", after_an_exit)
    handle(world, first)
    assert world.store.pending_keys("digits_1") == ()
    assert [directed_incarnation(world, replica_id) for replica_id in (WORKER_0, WORKER_1)] == [
        2,
        2,
    ]


@pytest.mark.parametrize("moment", ["mark_done", "release_lease"])
def test_event_at_the_end_of_a_delivery_is_requested_again(
    running: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its own request met the lease, after the holder had looked for the last time."""
    world = running
    world.kill(WORKER_0)
    (first,) = requests(world)
    method: Callable[..., None] = getattr(world.store, moment)
    killed: list[bool] = []

    def after_an_exit(*args: object) -> None:
        if not killed:
            killed.append(True)
            world.kill(WORKER_1)
            (second,) = requests(world)
            handle(world, second)
        method(*args)

    monkeypatch.setattr(world.store, moment, after_an_exit)
    handle(world, first)
    assert world.store.pending_keys("digits_1"), "the second exit is not provisioned yet"
    world.deliver()
    assert world.store.pending_keys("digits_1") == ()


def test_lease_of_a_delivery_that_died_expires(running: World) -> None:
    world = running
    world.kill(WORKER_0)
    world.bus.drain()
    assert lease(world)
    world.sweep()
    world.deliver()
    assert world.store.pending_keys("digits_1")
    world.wait(LEASE_S + 1)
    world.sweep()
    world.deliver()
    assert world.store.pending_keys("digits_1") == ()


def test_redelivery_continues_at_once_when_the_first_delivery_died(running: World) -> None:
    world = running
    world.kill(WORKER_0)
    (request,) = requests(world)
    assert lease(world, holder="message-1")
    provision.handle(request, world.fleet_deps, world.deps, world.now, "message-2")
    assert world.store.pending_keys("digits_1"), "another message meets the lease"
    provision.handle(request, world.fleet_deps, world.deps, world.now, "message-1")
    assert world.store.pending_keys("digits_1") == ()
    assert lease(world), "the redelivery has released it"


def test_failed_delivery_releases_its_lease(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.kill(WORKER_0)
    (request,) = requests(running)
    with monkeypatch.context() as patch:
        patch.setattr(running.fleet, "write_directive", raise_temporary_error)
        with pytest.raises(TemporaryError):
            handle(running, request)
    handle(running, request)
    assert running.store.pending_keys("digits_1") == ()


def raise_temporary_error(*_: object) -> bool:
    raise TemporaryError("503")


def test_delivery_that_only_waits_is_acknowledged_and_left_to_the_sweep(world: World) -> None:
    world.submit()
    world.fleet.is_slow = True
    (request,) = requests(world)
    handle(world, request)
    (again,) = requests(world)
    assert again == replace(request, number=2), "its VMs were requested in this delivery"
    handle(world, again)
    assert requests(world) == []
    assert world.store.pending_keys("digits_1")
    world.fleet.settle()
    world.sweep()
    world.deliver()
    world.report_all_ready()
    assert world.store.pending_keys("digits_1") == ()


def test_delivery_without_end_comes_back_a_bounded_number_of_times(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The insert stays pending, and no VM is listed: each cycle repeats it."""
    world.submit()
    inserts: list[Create] = []

    def create(_: object, step: Create, __: object) -> CreateOutcome:
        inserts.append(step)
        return Pending()

    monkeypatch.setattr(world.fleet, "create", create)
    world.deliver()
    assert world.store.pending_keys("digits_1")
    assert len(inserts) <= 2 * CYCLES_MAX * REQUESTS_MAX
    assert {step.names for step in inserts} == {step.names for step in inserts[:2]}


def test_directives_that_arrive_one_after_the_other_cost_a_logarithmic_number_of_listings(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits between cycles double, so that a stream of exits is provisioned in batches."""
    world = running
    exits = iter((WORKER_0, WORKER_1, CHIEF))
    sleep = world.wait

    def wait_beside_an_exit(seconds: float) -> None:
        sleep(seconds)
        if replica_id := next(exits, None):
            world.kill(replica_id)
            for request in requests(world):
                handle(world, request)

    world.kill(next(exits))
    (first,) = requests(world)
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts), sleep=wait_beside_an_exit)
    provision.handle(
        first, replace(world.fleet_deps, fleet=counting_fleet(world.fleet, counts)), deps
    )
    assert world.store.pending_keys("digits_1") == ()
    assert counts.calls["list_vms"] <= 5


@pytest.mark.parametrize("has_entry", [True, False])
def test_late_request_of_a_job_is_handled(running: World, has_entry: bool) -> None:
    running.kill(WORKER_0)
    (request,) = requests(running)
    late = running.now - LATE
    request = request if has_entry else ProvisionRequest("digits_1")
    provision.handle(request, running.fleet_deps, running.deps, late)
    assert running.store.pending_keys("digits_1") == ()


def checks(world: World, *published_at: datetime) -> int:
    """Handle requests to check all VMs in this order, and return how many have listed them."""
    counts = Counts()
    fleet_deps = replace(world.fleet_deps, fleet=counting_fleet(world.fleet, counts))
    for moment in published_at:
        provision.handle(OrphanSearch(), fleet_deps, world.deps, moment)
    return counts.calls["list_all"]


def test_late_check_of_all_vms_is_done_unless_a_later_one_has_begun(running: World) -> None:
    """With a backlog each one is late: if all were dropped, lost VMs would never be found."""
    late, later = running.now - LATE, running.now - LATE / 2
    assert checks(running, late) == 1
    assert checks(running, later, late) == 1


def test_redelivered_check_of_all_vms_is_done(running: World) -> None:
    assert checks(running, running.now, running.now) == 2


def test_late_admission_pass_is_done(world: World) -> None:
    world.limits = {"vcpus": 100}
    world.submit()
    world.bus.drain()
    provision.handle(AdmissionPass(), world.fleet_deps, world.deps, world.now - LATE)
    assert world.state == "PREPARING"


class RefusedDeletions(MemoryFleet):
    """Compute Engine's rate limit refuses every deletion for as long as the client repeats it."""

    refuse: Callable[[], None] | None = None

    def delete(self, vm: Vm) -> bool:
        if self.refuse:
            self.refuse()
            raise TemporaryError("rateLimitExceeded")
        return super().delete(vm)


def test_delivery_whose_steps_are_refused_ends_before_its_ack_deadline() -> None:
    """Otherwise Pub/Sub delivers the request again while the first delivery still runs, and both
    add to the load.
    """
    fleet = RefusedDeletions()
    world = World(fleet=fleet)
    world.submit(a_spec(workerCount=39))
    world.deliver()
    world.report_all_ready()
    world.exit_program(CHIEF, status=0)
    (request,) = requests(world)
    fleet.refuse = lambda: world.wait(30)
    began = world.now
    with pytest.raises(TemporaryError, match="rateLimitExceeded"):
        provision.handle(request, replace(world.fleet_deps, run_all=run_to_the_end), world.deps)
    assert (world.now - began).total_seconds() <= DELIVERY_S + 30
    fleet.refuse = None
    handle(world, request)
    assert world.vms == ()


def test_cycle_executes_a_bounded_number_of_steps_and_the_next_cycles_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cycle of a thousand steps would outlast the lease, which is extended between two cycles."""
    monkeypatch.setattr(reconciliation, "STEPS_MAX", 10)
    world = World()
    world.submit(a_spec(workerCount=24))
    world.deliver()
    world.report_all_ready()
    world.exit_program(CHIEF, status=0)
    (request,) = requests(world)
    steps_per_cycle: list[int] = []

    def run_all(tasks: Sequence[Callable[[], None]]) -> None:
        steps_per_cycle.append(len(tasks))
        run_to_the_end(tasks)

    provision.handle(request, replace(world.fleet_deps, run_all=run_all), world.deps)
    assert steps_per_cycle == [10, 10, 5]
    assert world.vms == ()


def run_to_the_end(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, and then raise the first error, as the function does."""
    errors = []
    for task in tasks:
        try:
            task()
        except TemporaryError as error:
            errors.append(error)
    if errors:
        raise errors[0]
