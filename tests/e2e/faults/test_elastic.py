"""Elastic: a gang goes on without a member whose VM is lost in a stockout, and takes it back after
all have saved.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tests.e2e.conftest import Lab
from trainmaster.core.events import MembersJoin, VmReady, VmsNotCreated
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHIEF, WORKER_0, WORKER_1 = (
    ReplicaId(TaskType.CHIEF, 0),
    ReplicaId(TaskType.WORKER, 0),
    ReplicaId(TaskType.WORKER, 1),
)
ZONE = "us-central1-c"


# Waits for the next request of VMs, one minute.
@pytest.mark.heavy(
    fact="a gang goes on with fewer members, and grows again",
    quick="`unit/flows/test_elastic.py`, `unit/core/rules/test_elastic.py`, `sim`",
)
def test_gang_goes_on_with_two_of_three_members_and_grows_when_the_stockout_ends(lab: Lab) -> None:
    """The middle member goes, so that ranks have to move up."""
    folder = f"gs://{lab.bucket}/elastic-{time.time_ns()}"
    spec = lab.scripted_spec(workers=2, pythonModule="trainer.saver", args=[], jobDir=folder)
    options = {"checkpointSignal": "SIGUSR1", "zones": [ZONE], "elastic": {"minReplicas": 2}}
    job_id = lab.upload({**spec, "trainmaster": options}, "elastic")
    lab.wait(job_id, "RUNNING")

    def train(members: tuple[ReplicaId, ...], start: str, within_s: float) -> datetime:
        """Wait until these members have taken a step in the round that begins so; return when they
        had.
        """
        begun = [
            f"rank {rank} of {len(members)} begins after {start}" for rank in range(len(members))
        ]

        def has_stepped(member: ReplicaId, line: str) -> bool:
            return "\nstep" in lab.console(job_id, member).replace("\r", "").rpartition(line)[2]

        lab.until(
            lambda: all(
                line in lab.console(job_id, m) for m, line in zip(members, begun, strict=True)
            ),
            within_s,
        )
        lab.until(
            lambda: all(has_stepped(m, line) for m, line in zip(members, begun, strict=True)), 30
        )
        return datetime.now(UTC)

    train((CHIEF, WORKER_0, WORKER_1), "step 0", 60)
    lab.faults.change(stockout_zones=[ZONE])
    try:
        lab.faults.crash(vm_name(job_id, WORKER_0))
        shrunk_at = train((CHIEF, WORKER_1), "step 0", 90)
        assert lab.state(job_id).job.round.without == (WORKER_0,)
    finally:
        lab.faults.clear()
    lab.until(lambda: not lab.state(job_id).job.round.without, 240)
    grown_at = train((CHIEF, WORKER_0, WORKER_1), "step ", 60)
    entries = lab.decisions(job_id)
    refused = next(entry for entry in entries if isinstance(entry.event, VmsNotCreated))
    joined = next(entry for entry in entries if isinstance(entry.event, MembersJoin))
    ready = [
        e
        for e in entries
        if isinstance(e.event, VmReady) and e.event.subject.replica_id == WORKER_0
    ]
    first_ready = next(entry for entry in ready if entry.at > refused.at)
    state = lab.state(job_id)
    assert [replica.restarts_used for replica in state.replicas] == [0, 0, 0]
    assert state.job.budgets.reruns_used == 0
    assert joined.at >= first_ready.at
    print(
        "from the refusal to the first step with 2:"
        f" {(shrunk_at - refused.at).total_seconds():.1f} s"
    )
    print(
        "from the new VM's report to the first step with 3:"
        f" {(grown_at - first_ready.at).total_seconds():.1f} s"
    )
    print(lab.story(job_id))
    lab.cancel(job_id)
