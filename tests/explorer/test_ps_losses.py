"""A job with parameter servers that only loses VMs, for more than a day."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.explorer.causes import OWN, PEER
from tests.explorer.programs import REACTIONS
from tests.explorer.scripted import FAILURE, Scripted
from trainmaster.core.model.job import JobState

HOUR_S = 3600.0
REACTS_S = 2.0


def lose_peers(case: Scripted) -> None:
    """The parameter server's VM is lost, and the others report that they lost a peer."""
    survivors = [case.program(name) for name in ("chief-0", "worker-0")]
    facts = REACTIONS["peer"]
    assert facts is not None
    case.lose("ps-0")
    for program in survivors:
        case.world.after(REACTS_S, case.explored.programs.exit, program, dict(facts), PEER)


def report_lost_peer(case: Scripted) -> None:
    """The worker reports that it lost a peer, and none was lost."""
    facts = REACTIONS["peer"]
    assert facts is not None
    case.explored.programs.exit(case.program("worker-0"), dict(facts), PEER)


def fail_beside_a_loss(case: Scripted) -> None:
    """The parameter server's VM is lost, and the worker fails by itself."""
    case.lose("ps-0")
    case.explored.programs.exit(case.program("worker-0"), dict(FAILURE), OWN)


def test_job_that_loses_its_parameter_server_every_hour_stays_in_its_first_attempt() -> None:
    case = Scripted(size=2, kind="ps")
    for _ in range(30):
        case.wait(HOUR_S)
        lose_peers(case)
    case.wait(HOUR_S)
    assert (case.job.state, case.job.attempt) == (JobState.RUNNING, 1), case.story
    assert "beside losses of VMs do not count" in case.story
    case.check()


@pytest.mark.parametrize("fail", [report_lost_peer, fail_beside_a_loss])
def test_only_a_lost_peer_beside_a_lost_vm_is_excused(fail: Callable[[Scripted], None]) -> None:
    case = Scripted(size=2, kind="ps")
    for _ in range(6):
        case.wait(HOUR_S)
        fail(case)
    case.wait(HOUR_S)
    assert case.job.budgets.reruns_used == 1, case.story
