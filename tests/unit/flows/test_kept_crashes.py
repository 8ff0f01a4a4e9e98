"""A function may die at each of its calls while machines are kept, taken or released: the sweep
alone goes on, and neither a machine nor the job is lost.

Jobs that keep machines, their sets and holders are explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.kept_jobs import (
    OWNER,
    a_keeping_job,
    a_keeping_spec,
    beat_all,
    machine_set,
    other,
    run_job,
    succeed,
)
from tests.support.world import World
from tests.unit.flows.test_kept_defences import find_no_holder
from trainmaster.core.model.machine_set import SetState
from trainmaster.flows.user_requests import release_machines

LEASE_S = 121
"""After that, the lease of a dead function has expired."""
SWEEPS = 3
MANY = 10
"""Fewer calls than any of these stories makes."""


class DiedError(BaseException):
    """The instance of a function has ended. Not an Exception, so that no flow catches it."""


@dataclass
class Instance:
    """The instance of a function, which ends before one of its calls."""

    calls: int
    """The number of calls until it ends."""

    def count_call(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise DiedError


class Port:
    """A port as the instance uses it."""

    def __init__(self, port: Any, instance: Instance) -> None:
        vars(self).update(_port=port, _instance=instance)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self._instance.count_call()
            return found(*arguments, **options)

        return call

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._port, name, value)


def survives(world: World, act: Callable[[World], object], calls: int) -> bool:
    """Let an instance of a function act that dies after `calls` calls of its ports.

    Return whether it has survived, because it makes fewer. What it has published is lost.
    """
    instance = Instance(calls)
    ports: dict[str, Any] = {
        name: Port(getattr(world, name), instance) for name in ("store", "bus", "fleet")
    }
    dying = replace(world, **ports)
    try:
        act(dying)
    except DiedError:
        return False
    finally:
        world.now = dying.now
        world.fleet.clock = lambda: world.now
        while world.bus.take():
            pass
    return True


def sweep(world: World) -> None:
    """Sweep after the lease of the dead function has expired, while the agents live."""
    world.wait(LEASE_S)
    for _ in range(SWEEPS):
        for listed in world.fleet.list_all():
            world.fleet.beat(listed.vm.name)
        world.sweep()
        world.deliver()
        world.wait(1)


def for_each_death(story: Callable[[int], bool]) -> int:
    """Tell the story with a death after 0, 1, 2 … calls, until it has none. Return their number."""
    calls = 0
    while not story(calls):
        calls += 1
    return calls


def take(calls: int, limits: dict[str, int] | None = None, *, must_take: bool = False) -> bool:
    """Return whether the function has survived. `must_take`: tell no story of a death before it
    has committed the take.
    """
    first = a_keeping_job()
    ids = {vm.instance_id for vm in first.vms}
    second = replace(other(first, "second"), limits=limits or {})
    second.submit(a_keeping_spec(), source=OWNER)
    has_survived = survives(second, World.provision, calls)
    if must_take and second.job.set_id != "first":
        return False
    sweep(second)
    second.taken_set_id = second.job.set_id
    second.report_all_ready()
    assert second.job.set_id == "first", calls
    assert {vm.instance_id for vm in second.vms} == ids, calls
    assert second.state == "RUNNING", calls
    assert machine_set(second).holder == "second", calls
    second.check()
    return has_survived


@pytest.mark.parametrize("limits", [{}, {"vcpus": 1000}], ids=["no limits", "limits"])
def test_function_dies_anywhere_in_a_take_the_sweep_hands_the_vms_over(
    limits: dict[str, int],
) -> None:
    assert for_each_death(lambda calls: take(calls, limits)) > MANY


def test_take_of_a_dead_function_is_lost_if_nothing_finds_its_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find_no_holder(monkeypatch)
    with pytest.raises(AssertionError):
        for_each_death(lambda calls: take(calls, must_take=True))


def end(calls: int) -> bool:
    first = World("first")
    run_job(first)
    ids = {vm.instance_id for vm in first.vms}

    def exit_zero(world: World) -> None:
        world.exit_program(world.job.plan.primary, 0)
        world.deliver()

    has_survived = survives(first, exit_zero, calls)
    if first.state == "RUNNING":  # it died before the commit: the agent repeats the exit
        succeed(first)
    sweep(first)
    assert machine_set(first).state is SetState.KEPT, calls
    assert {vm.instance_id for vm in first.vms} == ids, calls
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "first", calls
    assert {vm.instance_id for vm in second.vms} == ids, calls
    return has_survived


def test_function_dies_anywhere_in_an_end_that_keeps_machines() -> None:
    assert for_each_death(end) > MANY


def release(calls: int) -> bool:
    first = a_keeping_job()

    def release_and_delete(world: World) -> None:
        release_machines("first", world.deps, by="anna")
        world.deliver()

    has_survived = survives(first, release_and_delete, calls)
    if machine_set(first).is_kept:  # it died before the commit: the user repeats the request
        release_machines("first", first.deps, by="anna")
    while first.bus.take():
        pass
    sweep(first)
    assert machine_set(first).state is SetState.RELEASED, calls
    assert not first.vms, calls
    assert first.store.pending_keys("first") == (), calls
    return has_survived


def test_function_dies_anywhere_in_a_release() -> None:
    assert for_each_death(release) > MANY


def test_release_of_a_dead_function_leaks_if_nothing_finds_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def second_holder_releases(calls: int) -> bool:
        second = other(a_keeping_job(), "second")
        run_job(second)
        succeed(second)
        beat_all(second)
        survived = survives(
            second, lambda world: release_machines("second", world.deps, by="anna"), calls
        )
        sweep(second)
        is_released = machine_set(second).state is SetState.RELEASED
        assert not is_released or not second.vms
        return survived

    for_each_death(second_holder_releases)
    find_no_holder(monkeypatch)
    with pytest.raises(AssertionError):
        for_each_death(second_holder_releases)
