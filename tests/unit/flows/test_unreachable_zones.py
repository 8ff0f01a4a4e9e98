"""A zone that Google cannot reach: nothing there is lost or deleted, and everything elsewhere goes
on.

The ledger has the events of a job and the decisions about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import CHIEF, WORKER_0
from tests.support.world import World
from tests.unit.flows.sweep_helpers import search_orphans, sweep
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CancelRequested
from trainmaster.core.model.vm import LabelledVm
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit.record import record
from trainmaster.messaging.json_log import REFUSED_CALL
from trainmaster.ports import ZonesUnreachableError, reached
from trainmaster_local.memory.fleet import MemoryFleet

A, B = "us-central1-a", "us-central1-b"
"""The first two zones of the jobs here."""
# A sweep, the scheduled pass over all jobs, runs each minute: these are numbers of sweeps.
THREE_MINUTES = 3
TEN_MINUTES = 10
TWENTY_MINUTES = 20
OVER_AN_HOUR = 80
REFUSAL = (
    "list the TPU nodes: Google refuses the call, which an operator can repair: PERMISSION_DENIED"
)


def test_gang_in_an_unreachable_zone_is_neither_lost_nor_replaced(running: World) -> None:
    before, entries = running.vms, len(running.ledger)
    running.fleet.unreachable_zones = {A}
    for _ in range(TEN_MINUTES):
        sweep(running)
        running.provision()
    running.fleet.unreachable_zones = set()
    sweep(running)
    assert running.vms == before
    added = running.ledger[entries:]
    assert [entry.decision.reason for entry in added] == [Reason.OUT_OF_REACH]
    assert running.state == "RUNNING"
    running.check()


def test_vm_that_is_lost_in_an_unreachable_zone_is_replaced_there_when_it_returns(
    running: World,
) -> None:
    running.send("maintenance", WORKER_0, cause="preemption")
    running.fleet.vanish(running.vm(WORKER_0).name)
    running.fleet.unreachable_zones = {A}
    sweep(running, times=TWENTY_MINUTES)
    assert (running.job.zone, running.job.attempt) == (A, 1)
    running.fleet.unreachable_zones = set()
    sweep(running)
    assert running.vm(WORKER_0).zone == A
    running.check()


def test_job_that_has_not_run_moves_on_to_a_zone_that_can_be_reached(world: World) -> None:
    world.fleet.unreachable_zones = {A}
    world.submit()
    world.deliver()
    assert {vm.zone for vm in reached(lambda: world.fleet.list_vms("digits_1"))[0]} == {B}
    assert f"Google cannot reach {A}" in world.ledger[-1].decision.text


def refuse_lists(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Google refuse the lists of the job's VMs in its first zone, as Cloud TPU does while its
    API is disabled.
    """

    def list_vms(*_: Any, **__: Any) -> Any:
        raise ZonesUnreachableError(listed=(), zones=(A,), refusal=REFUSAL)

    monkeypatch.setattr(world.fleet, "list_vms", list_vms)


def test_refused_lists_are_named_for_a_job_that_runs(
    running: World, monkeypatch: pytest.MonkeyPatch, caplog: CapturedLogs
) -> None:
    refuse_lists(running, monkeypatch)
    sweep(running, times=TEN_MINUTES)
    assert running.ledger[-1].decision.text.startswith(f"{REFUSAL}: changes of this job's VMs wait")
    logged_actions = {getattr(record, "action", "") for record in caplog.records}
    assert REFUSED_CALL in logged_actions, "the action that an alert matches"
    assert running.state == "RUNNING"


def test_job_that_has_not_run_waits_for_an_hour_while_lists_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_lists(world, monkeypatch)
    world.submit()
    world.deliver()
    assert (world.state, world.job.zone, world.ledger[-1].decision.reason) == (
        "PREPARING",
        A,
        Reason.BLOCKED,
    )
    sweep(world, times=OVER_AN_HOUR)
    assert (world.state, world.ledger[-1].decision.reason) == ("FAILED", Reason.BLOCKED)
    assert REFUSAL in (world.job.error_message or "")


def test_unreachable_zone_of_the_plan_does_not_hide_a_lost_vm_elsewhere(running: World) -> None:
    running.fleet.vanish(running.vm(CHIEF).name)
    running.fleet.unreachable_zones = {B, "europe-west4-a"}
    sweep(running)
    assert running.replica(CHIEF).vm_generation == 2


def test_zone_that_no_job_uses_leaves_nothing_pending(world: World) -> None:
    world.fleet.unreachable_zones = {"europe-west4-a"}
    world.submit()
    world.deliver()
    assert world.store.pending_keys("digits_1") == ()


def test_vms_of_a_cancelled_job_are_deleted_when_their_zone_returns(running: World) -> None:
    running.fleet.unreachable_zones = {A}
    record(CancelRequested("digits_1", "me", running.now), running.deps)
    sweep(running, times=THREE_MINUTES)
    assert running.store.pending_keys("digits_1")
    running.fleet.unreachable_zones = set()
    sweep(running)
    assert running.vms == ()


def test_sweep_lists_the_zones_of_live_jobs_one_by_one_if_all_at_once_fails(running: World) -> None:
    asked: list[Sequence[str]] = []

    class StrictFleet(MemoryFleet):
        def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
            asked.append(zones)
            if not zones:
                raise TemporaryError("a zone anywhere fails the whole call")
            return super().list_all(zones)

    search_orphans(running, StrictFleet(_vms=running.fleet._vms))
    assert asked == [(), [running.job.zone]]
