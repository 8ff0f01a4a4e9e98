"""Cases in which decisions and facts once disagreed: who pays, and what `why` says, after one
chosen fault.

Who pays: a failure is charged to the replica whose program failed (`charges`), and the loss of a
machine to nobody. A reaction is how the programs of the peers end when one of them is gone
(`REACTIONS` in programs.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.explorer.causes import DONE, OWN
from tests.explorer.cloud import FIRST_ID
from tests.explorer.processes import Facts
from tests.explorer.programs import BUG, Program
from tests.explorer.scripted import FAILURE, Scripted
from trainmaster.core.model.job import JobState

GPU_LOST: Facts = {
    "exit_status": 1,
    "error": {
        **BUG,
        "type": "RuntimeError",
        "message": "CUDA error: Xid 79: GPU has fallen off the bus",
    },
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("reaction", ["peer", "bare", "abort", "launcher", "hangs"])
def test_failure_of_one_member_charges_it_once_and_nobody_else(reaction: str) -> None:
    case = Scripted(size=8, reaction=reaction)
    case.train(4000)
    case.fail("worker-1")
    case.train(60)
    assert case.charges == {"worker-1": 1}, case.story
    case.check()


@pytest.mark.parametrize("reaction", ["peer", "bare", "abort", "launcher", "hangs"])
@pytest.mark.parametrize("fault", ["lose", "reboot", "hang"])
def test_failure_of_one_machine_charges_nobody(fault: str, reaction: str) -> None:
    case = Scripted(size=4, reaction=reaction)
    case.train(4000)
    match fault:
        case "lose":
            case.lose("worker-1")
        case "reboot":
            case.reboot("worker-1")
        case _:
            case.vm("worker-1").hang()
    case.train(60)
    assert case.charges == {}, case.story
    assert case.job.attempt == 1
    case.check()


@pytest.mark.parametrize("reaction", ["peer", "bare", "abort", "hangs"])
@pytest.mark.parametrize("is_late", [False, True], ids=["hold reports it", "exit reports it"])
def test_reboot_of_a_vm_that_cannot_be_set_up_again_charges_nobody(
    reaction: str, is_late: bool
) -> None:
    case = Scripted(size=3, reaction=reaction)
    case.train(4000)
    case.vm("worker-1").agents[0].fails_setup = True
    case.reboot("worker-1", after_s=2.0 if is_late else 40.0)
    case.train(60)
    assert case.charges == {}, case.story
    case.check()


def test_failure_of_a_member_that_cannot_be_set_up_again_is_charged_to_it() -> None:
    case = Scripted(size=3, reaction="bare")
    case.train(4000)
    case.vm("worker-1").agents[0].fails_setup = True
    case.fail("worker-1")
    case.train(60)
    assert case.charges == {"worker-1": 1}, case.story
    case.check()


@pytest.mark.parametrize("reaction", ["launcher", "abort"])
def test_job_that_only_loses_machines_lives_on(reaction: str) -> None:
    case = Scripted(size=4, reaction=reaction)
    for loss in range(12):
        case.train(1800)
        (case.reboot if loss % 3 == 2 else case.lose)(f"worker-{loss % 3}")
    case.train(60)
    assert case.is_running, case.story
    assert case.charges.get("rerun", 0) == 0
    case.check()


def test_machine_that_breaks_every_program_is_replaced() -> None:
    case = Scripted(size=4)
    case.train()
    broken = case.vm("worker-1").instance_id

    def break_program(program: Program) -> None:
        if program.agent.vm.instance_id == broken:
            case.world.after(700, case.explored.programs.exit, program, dict(GPU_LOST), OWN)

    case.explored.on_program = break_program
    break_program(case.program("worker-1"))
    case.wait(4 * 3600)
    assert case.is_running, case.story
    assert case.vm("worker-1").instance_id != broken
    assert case.charges == {"worker-1": 5, "rerun": 1}, case.story


def test_machine_that_reboots_young_again_and_again_is_replaced() -> None:
    case = Scripted(size=4)
    case.train()
    unstable = case.vm("worker-1").instance_id
    for _ in range(4):
        case.train(300)
        if case.vm("worker-1").instance_id != unstable:
            break
        case.reboot("worker-1")
    case.train(60)
    assert case.vm("worker-1").instance_id != unstable, case.story
    assert case.charges in ({}, {"worker-1": 1}), case.story


@pytest.mark.parametrize(
    ("facts", "options", "state"),
    [
        (FAILURE, {}, JobState.RUNNING),
        ({"signal": 9, "out_of_memory": True}, {}, JobState.FAILED),
        (FAILURE, {"disableRetries": True}, JobState.FAILED),
        ({"exit_status": 3}, {"exitPolicy": {"fail": ["3"]}}, JobState.FAILED),
    ],
    ids=["bug", "out of memory", "disableRetries", "exitPolicy"],
)
@pytest.mark.parametrize("kind", ["ps", "sync"])
def test_loss_of_a_peer_long_ago_excuses_no_failure(
    kind: str, facts: dict[str, object], options: dict[str, object], state: JobState
) -> None:
    case = Scripted(size=3, kind=kind, options=options, reaction="hangs")
    case.wait(3600)
    case.lose("worker-1")
    case.wait(3 * 3600)
    case.fail("worker-0", facts)
    case.wait(300)
    assert case.job.state is state, case.story
    assert case.charges == ({"worker-0": 1} if state is JobState.RUNNING else {"fail": 1}), (
        case.story
    )


@pytest.mark.parametrize("first", ["failure", "abort"])
def test_same_budget_pays_whichever_exit_is_judged_first(first: str) -> None:
    case = Scripted(size=4, reaction="abort", noticed_s=0.6)
    case.train(5000)
    with case.late_messages(5.0 if first == "abort" else 0.0):
        case.fail("worker-0")
    case.train(60)
    assert case.charges == {"worker-0": 1}, case.story
    assert case.job.attempt == 1


@pytest.mark.parametrize("order", ["exit", "loss"])
@pytest.mark.parametrize("size", [1, 3])
def test_primary_that_completed_ends_the_job_whatever_happens_to_its_machine(
    size: int, order: str
) -> None:
    case = Scripted(size=size)
    case.train(3600) if size > 1 else case.wait(3600)
    with case.late_messages(10.0 if order == "loss" else 0.0):
        case.explored.programs.exit(case.program("chief-0"), {"exit_status": 0}, DONE)
    case.world.after(3.0, case.lose, "chief-0")
    case.world.after(4.0, case._sweep)
    case.wait(900)
    assert case.job.state is JobState.SUCCEEDED, case.story


@pytest.mark.parametrize("outage_s", [0, 120, 300, 1800])
@pytest.mark.parametrize(
    "options", [{"exitPolicy": {"preset": "service"}}, {"disableRetries": True}, {}]
)
def test_backlog_makes_no_innocent_exit_final(options: dict[str, object], outage_s: float) -> None:
    case = Scripted(size=3, reaction="bare", options=options)
    case.train(3600)
    case.functions.down_until_s = case.world.now_s + outage_s
    case.lose("worker-0")
    case.wait(outage_s + 60)
    case.train(60)
    assert case.is_running, case.story
    assert case.charges == {}


@pytest.mark.parametrize("minutes", [19, 21, 41, 50])
def test_long_set_up_with_heartbeats_keeps_its_machine(minutes: int) -> None:
    shortest_s = longest_s = 60.0 * minutes
    case = Scripted(size=1, slow_setup=1.0, slow_setup_s=(shortest_s, longest_s))
    case.wait(longest_s + 120)
    assert case.is_running, case.story
    assert case.cloud.count == FIRST_ID + 1, "another VM was created"


@pytest.mark.parametrize("ahead_s", [5, 60, 600, 3600])
def test_clock_of_a_peer_gives_no_free_restarts(ahead_s: float) -> None:
    case = Scripted(size=2)
    case.train(1000)
    case.lose("worker-0")
    case.train(100)
    for agent in case.vm("worker-0").agents:
        agent.skew_s = ahead_s
    for failures in range(1, 4):
        case.fail("chief-0")
        case.train(700)
        assert case.charges == {"chief-0": failures}, case.story


def test_machines_that_all_go_silent_are_replaced() -> None:
    case = Scripted(size=2)
    case.train(3600)
    case.vm("chief-0").hang()
    case.vm("worker-0").hang()
    case.wait(2 * 3600)
    assert case.explored.programs.are_training, case.story
    assert case.charges == {}


@pytest.mark.parametrize("kind", ["sync", "ps"])
def test_silent_machine_is_replaced_though_the_job_is_rerun_again_and_again(kind: str) -> None:
    case = Scripted(
        size=4, kind=kind, options={"restartJobOnWorkerRestart": True}, noticed_s=10_000.0
    )
    case.wait(3600)
    hung = case.vm("worker-0").instance_id
    case.vm("worker-0").hang()
    for number in range(5):
        case.lose(f"worker-{1 + number % 2}")
        case.wait(1000)
    assert case.vm("worker-0").instance_id != hung, case.story


def test_silent_host_of_a_slice_is_replaced() -> None:
    case = Scripted(kind="slices", size=1)
    case.train(3600)
    case.vm("chief-0").hang()
    case.wait(2 * 3600)
    assert case.explored.programs.are_training, case.story


@pytest.mark.parametrize("life_s", [30, 60, 240])
def test_machines_that_go_soon_after_their_report_are_not_requested_without_end(
    life_s: float,
) -> None:
    case = Scripted(size=2, options={"spot": {"use": "all"}})
    case.train()

    def lose_soon(program: Program) -> None:
        if program.agent.vm.zone.endswith("a") and str(program.replica_id) == "worker-0":
            case.world.after(life_s, program.agent.vm.vanish)

    case.explored.on_program = lose_soon
    case.lose("worker-0")
    case.wait(2 * 3600)
    assert case.job.zone.endswith("b"), case.story
    assert case.explored.programs.are_training
    assert case.charges == {}
