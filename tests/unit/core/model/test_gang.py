"""Which replicas a job may start without.

`gang`: all replicas start together. `independent`: no replica waits for another one
(`independentReplicas` of the job file).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import a_plan
from trainmaster.core.model.gang import is_required, required_replicas
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import TaskGroup

SERVERS = TaskGroup(TaskType.PS, 2, "n1-standard-4")
EVALUATOR = TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4")


def names(*groups: TaskGroup, **changes: object) -> list[str]:
    plan = a_plan(workers=2, **changes)
    return [
        str(replica_id)
        for replica_id in required_replicas(replace(plan, groups=(*plan.groups, *groups)))
    ]


@pytest.mark.parametrize(
    ("groups", "changes", "required"),
    [
        pytest.param(
            (SERVERS, EVALUATOR),
            {},
            ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1", "evaluator-0"],
            id="all of a gang",
        ),
        pytest.param(
            (SERVERS, EVALUATOR),
            {"gang": False},
            ["chief-0", "ps-0", "ps-1"],
            id="not the workers of parameter servers",
        ),
        pytest.param(
            (EVALUATOR,),
            {"gang": False},
            ["chief-0", "worker-0", "worker-1"],
            id="all workers of a synchronous job",
        ),
        pytest.param(
            (SERVERS,),
            {"gang": False, "independent": True},
            ["chief-0"],
            id="only the primary of independent replicas",
        ),
    ],
)
def test_required_replicas_follow_from_the_jobs_roles(
    groups: tuple[TaskGroup, ...], changes: dict[str, object], required: list[str]
) -> None:
    assert names(*groups, **changes) == required


def test_worker_0_is_required_where_it_is_the_primary() -> None:
    plan = replace(
        a_plan(workers=2, gang=False, independent=True),
        groups=(TaskGroup(TaskType.WORKER, 3, "n1-standard-4"),),
    )
    assert is_required(plan, ReplicaId(TaskType.WORKER, 0))
    assert not is_required(plan, ReplicaId(TaskType.WORKER, 1))
