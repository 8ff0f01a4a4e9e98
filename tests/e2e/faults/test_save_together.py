"""Save together: when one VM is preempted, all members save the same step, and the next round
continues from it.
"""

from __future__ import annotations

import time

import pytest

from tests.e2e.conftest import Lab
from tests.support.load import is_quick
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SIGNALLED_S = 2.0


def saved(lab: Lab, folder: str, ranks: int) -> list[tuple[int, float]]:
    """Return the step that each rank has saved, and when it was signalled."""
    files = [lab.objects.read(f"{folder}/saved-{rank}", max_bytes=100) for rank in range(ranks)]
    return [
        (int(step), float(at)) for step, at in (file.decode().split() for file in files if file)
    ]


@pytest.mark.parametrize(
    ("workers", "preempted"),
    [
        (1, 1),
        pytest.param(
            3,
            4,
            marks=pytest.mark.heavy(
                fact="members that are preempted in turn lose no step",
                quick="the same test with one of two members",
            ),
        ),
    ],
)
def test_each_rank_preempted_in_turn_loses_no_step_of_any_rank(
    lab: Lab, workers: int, preempted: int
) -> None:
    members = (
        ReplicaId(TaskType.CHIEF, 0),
        *(ReplicaId(TaskType.WORKER, index) for index in range(workers)),
    )
    folder = f"gs://{lab.bucket}/saver-{time.time_ns()}"
    spec = lab.scripted_spec(workers=workers, pythonModule="trainer.saver", args=[], jobDir=folder)
    job_id = lab.upload({**spec, "trainmaster": {"checkpointSignal": "SIGUSR1"}}, "saver")
    lab.wait(job_id, "RUNNING")
    lab.until(lambda: all("step 3" in lab.console(job_id, member) for member in members), 60)
    times, last = [], 0
    for number, member in enumerate(members[:preempted], start=1):
        # Members are signalled between two steps, which they take at full seconds.
        time.sleep(1 - time.time() % 1)
        preempted_at = time.time()
        lab.faults.preempt(vm_name(job_id, member), 30)
        lab.until(lambda: lab.state(job_id).job.round.number == number + 1, 30)  # noqa: B023
        lab.until(lambda: not lab.state(job_id).job.round.is_held, 60)
        steps = saved(lab, folder, len(members))
        times.append(max(at for _, at in steps) - preempted_at)
        assert len(steps) == len(members), lab.story(job_id)
        assert {step for step, _ in steps} == {steps[0][0]}, lab.story(job_id)
        assert steps[0][0] > last, lab.story(job_id)
        assert is_quick(times[-1], SIGNALLED_S), lab.story(job_id)
        last = steps[0][0]
        lab.until(
            lambda: all(f"begins after step {last}," in lab.console(job_id, m) for m in members),  # noqa: B023
            60,
        )
        lab.until(lambda: all(f"step {last + 1}" in lab.console(job_id, m) for m in members), 60)  # noqa: B023
    state = lab.state(job_id)
    assert [replica.restarts_used for replica in state.replicas] == [0] * len(members)
    assert [replica.vm_generation for replica in state.replicas] == [2] * preempted + [1] * (
        len(members) - preempted
    )
    print(
        "from the preemption to the last signal:",
        [f"{seconds:.2f} s" for seconds in times],
        lab.story(job_id),
        sep="\n",
    )
    lab.cancel(job_id)
