"""The primary exits 0, which means success, and the job is rerun for another cause before that is
reported. An attempt is one execution of the whole job.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, a_spec
from tests.support.world import World

KINDS = pytest.mark.parametrize(
    "options", [{}, {"independentReplicas": True}], ids=["synchronous", "alone"]
)


def rerun_after_exit_0(options: dict[str, Any]) -> tuple[World, dict[str, object]]:
    """Return the job in its second attempt, and the message that is late."""
    world = World()
    rerun = {"restartJobOnWorkerRestart": True, **options}
    world.submit({**a_spec(), "trainmaster": {"zones": ["us-central1-a"], **rerun}})
    world.deliver()
    world.report_all_ready()
    world.wait(1000)
    exit_0 = {**world.message_fields(CHIEF), "cause": "process", "exit_status": 0}
    world.silent |= {CHIEF, WORKER_0}
    world.send("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert (world.state, world.job.attempt) == ("RUNNING", 2)
    return world, exit_0


@KINDS
def test_exit0_before_rerun_is_success_when_it_arrives(options: dict[str, Any]) -> None:
    world, exit_0 = rerun_after_exit_0(options)
    world.send("replica-exit", CHIEF, **exit_0)
    assert (world.state, world.job.attempt) == ("SUCCEEDED", 2)
    world.deliver()
    assert world.vms == ()
    world.check()


def test_exit0_before_rerun_is_success_when_the_next_report_contains_it() -> None:
    world, exit_0 = rerun_after_exit_0({})
    names = ("attempt", "incarnation", "at", "cause", "exit_status")
    world.send("vm-ready", CHIEF, ended={name: exit_0[name] for name in names})
    assert world.state == "SUCCEEDED"
    world.check()


@KINDS
def test_exit0_before_rerun_is_ignored_once_the_primary_runs_again(
    options: dict[str, Any],
) -> None:
    world, exit_0 = rerun_after_exit_0(options)
    world.report_all_ready()
    world.send("replica-exit", CHIEF, **exit_0)
    assert (world.state, world.job.attempt) == ("RUNNING", 2)
    world.check()


def rerun_after_crash() -> tuple[World, dict[str, object]]:
    """Like `rerun_after_exit_0`, of replicas that are judged each alone."""
    world = World(is_independent=True)
    world.start_running()
    exit_0 = {**world.message_fields(CHIEF), "cause": "process", "exit_status": 0}
    world.silent.add(CHIEF)
    world.exit_program(WORKER_0, 134)
    world.deliver()
    assert (world.state, world.job.attempt) == ("RUNNING", 2)
    return world, exit_0


@pytest.mark.parametrize("cause", ["process", "vm_stopping", "vm_restarted", "saved"])
def test_exit0_before_rerun_is_ignored_once_an_exit_tells_that_the_primary_ran_again(
    cause: str,
) -> None:
    """The report of its start was lost."""
    world, exit_0 = rerun_after_crash()
    world.send("replica-exit", CHIEF, cause=cause, exit_status=1)
    assert (world.state, world.job.attempt) == ("RUNNING", 2)
    world.send("replica-exit", CHIEF, **exit_0)
    assert world.state == "RUNNING"
    world.check()


@pytest.mark.parametrize("cause", ["unfit", "setup"])
def test_exit0_before_rerun_is_success_if_the_primary_could_not_start_since(cause: str) -> None:
    world, exit_0 = rerun_after_crash()
    world.send("replica-exit", CHIEF, cause=cause, exit_status=1, tail="a GPU has errors")
    assert (world.state, world.job.attempt) == ("RUNNING", 2)
    world.send("replica-exit", CHIEF, **exit_0)
    assert world.state == "SUCCEEDED"
    world.check()


@KINDS
def test_exit0_before_rerun_of_another_replica_is_no_success(options: dict[str, Any]) -> None:
    world, _ = rerun_after_exit_0(options)
    fields = {**world.message_fields(WORKER_0), "attempt": 1, "incarnation": 1}
    world.send("replica-exit", WORKER_0, **{**fields, "cause": "process", "exit_status": 0})
    assert world.state == "RUNNING"
