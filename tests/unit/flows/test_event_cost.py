"""Calls of the store per event: one read and one commit, and one more where the rules need more."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shared.flows import replica_exit, vm_ready
from shared.messaging import agent_messages
from tests.support.counting import Counts, counting_store
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World


@pytest.fixture
def world() -> World:
    """A job whose VMs were requested."""
    world = World()
    world.submit()
    world.deliver()
    return world


def calls_of(world: World, kind: str, **more: object) -> dict[str, int]:
    """Handle an event of worker 0 and return the store's calls."""
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    data = json.dumps({**world.message_fields(WORKER_0), **more}).encode()
    if kind == "vm-ready":
        vm_ready.handle(agent_messages.decode_vm_ready(data), deps)
    else:
        replica_exit.handle(agent_messages.decode_replica_exit(data), deps)
    return dict(counts.calls)


def test_ready_report_of_a_preparing_job_costs_one_read_one_commit_and_one_count(world: World) -> None:
    assert calls_of(world, "vm-ready") == {"load": 1, "commit": 1, "count_ready": 1}


def test_ready_report_of_a_running_job_costs_one_read_and_one_commit(world: World) -> None:
    world.report_all_ready()
    world.exit_program(WORKER_0)
    world.deliver()
    assert calls_of(world, "vm-ready") == {"load": 1, "commit": 1}


def test_exit_zero_of_a_running_job_costs_one_read_and_one_commit(world: World) -> None:
    world.report_all_ready()
    assert calls_of(world, "replica-exit", cause="process", exit_status=0) == {"load": 1, "commit": 1}


def test_repeated_last_ready_report_starts_a_job_whose_first_report_was_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first handling died between the commit of the report and the commit of the start."""
    world.send("vm-ready", CHIEF)
    world.send("vm-ready", WORKER_1)
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "count_ready", lambda job_id, attempt: 0)
        world.send("vm-ready", WORKER_0)
    assert world.state == "PREPARING"
    world.send("vm-ready", WORKER_0)
    assert world.state == "RUNNING"
