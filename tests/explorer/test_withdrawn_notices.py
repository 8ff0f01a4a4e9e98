"""Maintenance is announced and then cancelled, while programs save because of it."""

from __future__ import annotations

import pytest

from tests.explorer.causes import EXITS
from tests.explorer.scripted import Scripted

HOUR_S = 3600.0
SHORT_NOTICE_S = 60.0


@pytest.mark.parametrize("save_s", [15.0, 118.0, 500.0])
def test_save_of_all_members_costs_nothing_however_long_it_takes(save_s: float) -> None:
    case = Scripted(size=3)
    case.explored.reaction_to_save = EXITS
    case.explored.save_s = save_s
    case.train(HOUR_S)
    case.announce("worker-0", SHORT_NOTICE_S)
    case.wait(10)
    case.withdraw("worker-0")
    case.wait(save_s)
    case.train(60)
    assert (case.is_running, case.charges) == (True, {}), case.story
    case.check()


@pytest.mark.parametrize("kind", ["sync", "independent"])
@pytest.mark.parametrize("save_s", [15.0, 118.0, 500.0])
def test_save_of_a_program_alone_is_no_success(kind: str, save_s: float) -> None:
    """The notice came an hour ahead, and the VM stays."""
    independent = {"independentReplicas": True}
    case = Scripted(size=1) if kind == "sync" else Scripted(size=2, kind=kind, options=independent)
    case.explored.is_coupled = False
    case.explored.reaction_to_save = EXITS
    case.explored.save_s = save_s
    case.wait(HOUR_S)
    saving = case.vm("chief-0")
    case.announce("chief-0", HOUR_S)
    case.wait(10)
    case.withdraw("chief-0")
    case.wait(save_s + 120)
    assert (case.is_running, case.charges) == (True, {}), case.story
    assert case.vm("chief-0") is saving
    case.check()
