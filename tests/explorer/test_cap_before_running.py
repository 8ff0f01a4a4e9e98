"""`maxCost` of a job that is PREPARING, because one replica has no VM: its other programs train and
are asked to save.
"""

from __future__ import annotations

import pytest

from tests.explorer.causes import EXITS, GOES_ON
from tests.explorer.scripted import DAY_S, LAST_SAVE_S, Scripted
from trainmaster.core.model.job import JobState

ONE_ZONE = {"zones": ["us-central1-a"]}


@pytest.mark.parametrize(
    ("kind", "options"), [("independent", {"independentReplicas": True}), ("ps", {})]
)
@pytest.mark.parametrize("reaction", [EXITS, GOES_ON])
def test_programs_that_train_before_all_replicas_have_vms_save_at_the_cap(
    kind: str, options: dict[str, object], reaction: str
) -> None:
    case = Scripted(size=2, kind=kind, options={"maxCost": "0.60 USD", **ONE_ZONE, **options})
    case.explored.reaction_to_save = reaction
    case.stockout(DAY_S, "worker")
    case.wait(DAY_S)
    job = case.job
    assert (job.state, job.started_at) == (JobState.CANCELLED, None), case.story
    trained = {program.replica_id for program in case.explored.programs.all}
    assert trained, "no program ever ran"
    # Only some of the machines run, so that the money of the last save lasts longer.
    assert max(case.lost_work_s().values()) <= 2 * LAST_SAVE_S, case.story
    assert all(program.saved_s for program in case.explored.programs.all), case.story
    case.check()
