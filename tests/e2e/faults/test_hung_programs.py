"""A gang that hangs: one member waits for a batch or is stopped, and the other one waits for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tests.e2e.conftest import Lab
from tests.support.load import is_quick
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica_id import ReplicaId, TaskType

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="a gang that hangs is ended with its stacks, and goes on",
        quick=(
            "`unit/core/rules/test_hung_members.py`, `unit/agent/control/test_stall_watch.py`,"
            " `integration/agent/test_stall.py`"
        ),
    ),
    pytest.mark.timeout(2400),
]

MEMBERS = (ReplicaId(TaskType.CHIEF, 0), ReplicaId(TaskType.WORKER, 0))
STEPS = 20


@pytest.mark.parametrize(
    ("timeout", "action", "limit_s"), [("60s", "stop", 60), ("auto", "hang", 600)]
)
def test_gang_that_hangs_is_ended_with_the_stacks_of_all_members_and_goes_on(
    lab: Lab, timeout: str, action: str, limit_s: int
) -> None:
    args = [
        "--steps",
        str(STEPS),
        "--step-seconds",
        "1",
        "--together",
        "--do",
        f"worker-0:{action}@6",
    ]
    folder = f"gs://{lab.bucket}/hung-{time.time_ns()}"
    job_id = lab.scripted(
        workers=1, args=args, jobDir=folder, trainmaster={"stallTimeout": timeout}
    )
    lab.wait(job_id, "RUNNING")
    lab.until(lambda: "step 5/" in lab.console(job_id, MEMBERS[0]), 60)
    hung_at = datetime.now(UTC)
    lab.until(lambda: f"step {STEPS}/" in lab.console(job_id, MEMBERS[0]), limit_s + 120)
    consoles = [lab.console(job_id, member) for member in MEMBERS]
    times = {
        entry.decision.reason: (entry.at - hung_at).total_seconds()
        for entry in lab.store.ledger(job_id)
    }
    print(
        {reason: f"{seconds:.1f} s" for reason, seconds in times.items()},
        lab.story(job_id),
        sep="\n",
    )
    for console, function in zip(consoles, ("receive", "load"), strict=True):
        stacks = console[console.index("Fatal Python error: Aborted") :]
        assert f" in {function}" in stacks.partition("Extension modules")[0]
    assert limit_s - 15 < times[Reason.MEMBER_FAILED]
    assert is_quick(times[Reason.MEMBER_FAILED], limit_s + 80)
    (verdict,) = (
        entry for entry in lab.store.ledger(job_id) if entry.decision.reason is Reason.STALLED
    )
    assert "worker 0 in load (trainer/task.py:" in verdict.decision.text
    assert "chief 0 in " in verdict.decision.text
    lab.wait_for_success(job_id)
    charged = [replica.restarts_used for replica in lab.state(job_id).replicas]
    assert sum(charged) == 1, "the hang of a gang is charged once"
