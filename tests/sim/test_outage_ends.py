"""How long an outage of Compute Engine outlasts itself: VMs of a job that ended meanwhile."""

from __future__ import annotations

from typing import Any, Final

import pytest

from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.flows.user_requests import cancel_job
from trainmaster.ports import ZonesUnreachableError
from trainmaster_local.simulator.history import SWEEP_S, History
from trainmaster_local.simulator.scenarios.fault_profiles import CALM
from trainmaster_local.simulator.scenarios.generator import rng_of, training_job
from trainmaster_local.simulator.scenarios.scenario import Scenario, SimJob
from trainmaster_local.simulator.world.fleet import DELETE_S, SimFleet

JOB: Final = "sim_1"
BEGINS_S, CANCELLED_S, ENDS_S = 200.0, 300.0, 1300.0
CALLS: Final = ("list_vms", "list_all", "create", "delete", "write_directive", "last_heartbeat")
DECIDES_S: Final = 5.0
"""Time for the messages and calls between the sweep and the deletion."""


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        pytest.param(RefusedError("403"), CALLS, id="disabled"),
        pytest.param(RefusedError("403"), ("delete",), id="deletions are refused"),
        pytest.param(TemporaryError("503"), CALLS, id="no answer"),
        pytest.param(TemporaryError("503"), ("delete",), id="deletions fail"),
        pytest.param(
            ZonesUnreachableError(listed=(), zones=("us-central1-a", "us-central1-b")),
            ("list_vms", "list_all"),
            id="unreachable zones",
        ),
    ],
)
@pytest.mark.parametrize("ends_s", [ENDS_S, ENDS_S + SWEEP_S / 2])
def test_vms_of_a_job_that_ended_in_an_outage_are_deleted_by_the_next_sweep(
    monkeypatch: pytest.MonkeyPatch, error: Exception, calls: tuple[str, ...], ends_s: float
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    document, plan = training_job(workers=1, variant=1, job_id=JOB)
    job = SimJob(JOB, document, plan, duration_s=5000, checkpoint_s=30)
    history = History(Scenario((job,), CALM), rng_of(0, CALM))
    scheduler = history.context.scheduler
    history.users.plan(job)
    scheduler.after(10, history._sweep)
    scheduler.run_until(BEGINS_S)
    assert len(history.pool.present) == 2, "the job runs"
    with monkeypatch.context() as patch:
        for call in calls:
            patch.setattr(SimFleet, call, fail)
        scheduler.run_until(CANCELLED_S)
        cancel_job(JOB, "me", history.functions._deps())
        scheduler.run_until(ends_s)
        assert len(history.pool.present) == 2, "its VMs are left"
    _, longest_deletion_s = DELETE_S
    scheduler.run_until(
        ends_s + SWEEP_S + DECIDES_S + longest_deletion_s,
        stop_when=lambda: not history.pool.present,
    )
    assert not history.pool.present
