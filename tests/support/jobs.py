"""Builders of small jobs, replicas and events. A test names only the fields that it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from trainmaster.core.events import (
    ExitCause,
    IncarnationRef,
    ProgramError,
    ReplicaExited,
    VmLost,
    VmReady,
    VmRef,
)
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.origin import Origin
from trainmaster.core.model.plan import Access, BootImage, Limits, Plan, Restarts
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.saving import SavePolicy
from trainmaster.core.model.task_group import Program, TaskGroup
from trainmaster.core.model.vm import LossCause
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.model.watching import Watching
from trainmaster.core.model.where import Where

START = datetime(2026, 11, 21, 3, 0, 0, tzinfo=UTC)

CHIEF = ReplicaId(TaskType.CHIEF, 0)
WORKER_0 = ReplicaId(TaskType.WORKER, 0)
WORKER_1 = ReplicaId(TaskType.WORKER, 1)

GROUP_OF_FIELD = {
    field.name: group
    for group, kind in {
        "where": Where,
        "image": BootImage,
        "limits": Limits,
        "restarts": Restarts,
        "saving": SavePolicy,
        "watching": Watching,
        "access": Access,
        "origin": Origin,
    }.items()
    for field in fields(kind)
}
"""Field of a group of the plan → the group."""


def at(seconds: float) -> datetime:
    """Return the time `seconds` after `START`."""
    return START + timedelta(seconds=seconds)


def a_spec(**training_input: object) -> dict[str, object]:
    """Return a job file as a user writes it: one chief and two workers."""
    return {
        "trainingInput": {
            "scaleTier": "CUSTOM",
            "masterType": "n1-standard-4",
            "workerType": "n1-standard-4",
            "workerCount": 2,
            "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
            "pythonModule": "trainer.task",
            "args": ["--epochs", "5"],
            "jobDir": "gs://bucket/digits",
            "region": "us-central1",
            "runtimeVersion": "2.21",
            **training_input,
        }
    }


def a_plan(*, workers: int = 2, **changes: object) -> Plan:
    """Return the plan of a chief and some workers. `changes`: see `change_plan`."""
    groups = [TaskGroup(TaskType.CHIEF, 1, "n1-standard-4")]
    if workers:
        groups.append(TaskGroup(TaskType.WORKER, workers, "n1-standard-4"))
    plan = Plan(
        groups=tuple(groups),
        program=Program(
            ("gs://bucket/trainer-0.1.tar.gz",),
            "trainer.task",
            ("--epochs", "5"),
            "gs://bucket/digits",
        ),
        where=Where("us-central1", ("us-central1-a", "us-central1-b")),
        image=BootImage("projects/p/global/images/family/tensorflow", "tensorflow"),
        limits=Limits(max_running_s=3600, max_wait_s=1800),
    )
    return change_plan(plan, **changes)


def change_plan(plan: Plan, **changes: object) -> Plan:
    """Return the plan with fields of it, or of its groups of fields, replaced."""
    for name, value in changes.items():
        group = GROUP_OF_FIELD.get(name)
        change = {name: value}
        if group is not None:
            change = {group: replace(getattr(plan, group), **change)}
        plan = replace(plan, **change)  # type: ignore[arg-type]
    return plan


def a_job(state: JobState = JobState.RUNNING, plan: Plan | None = None, **changes: object) -> Job:
    """Return a job that was created at `START`. While it is queued or prepared, a round is held."""
    job = Job(
        job_id="digits_1",
        spec_json=json.dumps(a_spec()),
        submission="gs://bucket/jobs/digits.yaml#1",
        plan=plan or a_plan(),
        state=state,
        created_at=START,
        started_at=at(10) if state is JobState.RUNNING else None,
    )
    if state in (JobState.QUEUED, JobState.PREPARING) and job.plan.is_synchronous:
        job = replace(job, round=Round(is_held=True, ordered_at=START))
    return replace(job, **changes)  # type: ignore[arg-type]


def a_replica(
    replica_id: ReplicaId, state: ReplicaState = ReplicaState.RUNNING, **changes: object
) -> Replica:
    """Return a replica of the first attempt, which is ready since `at(10)` unless it waits.

    `restarts_used`: how many restarts it has used, one each second since `START`.
    """
    ready = None if state is ReplicaState.WAITING else at(10)
    if (used := changes.pop("restarts_used", None)) is not None:
        changes["restarts"] = tuple(at(number) for number in range(int(str(used))))
    has_reported = state not in (ReplicaState.WAITING, ReplicaState.REPLACING)
    replica = Replica(
        attempt=1,
        replica_id=replica_id,
        state=state,
        ready_at=ready,
        instance_id="1001" if has_reported else None,
    )
    return replace(replica, **changes)  # type: ignore[arg-type]


def a_state(*replicas: Replica, job: Job | None = None) -> State:
    """Return the whole attempt: the given replicas, and the job's other replicas running."""
    job = job or a_job()
    given = {replica.replica_id: replica for replica in replicas}
    attempt = tuple(
        given.get(replica_id) or a_replica(replica_id, attempt=job.attempt)
        for replica_id in job.plan.replica_ids
    )
    return State(job, attempt, whole=True)


def an_incarnation(
    replica_id: ReplicaId,
    incarnation: int = 1,
    vm_generation: int = 1,
    attempt: int = 1,
    job_id: str = "digits_1",
) -> IncarnationRef:
    """Return what a message of the replica's agent is about, on the VM 1001."""
    return IncarnationRef(
        job_id,
        attempt,
        replica_id,
        incarnation,
        vm_generation,
        VmRef(vm_name(job_id, replica_id), "us-central1-a", "1001"),
    )


def ready(replica_id: ReplicaId, *, incarnation: int = 1, vm_generation: int = 1) -> VmReady:
    """Return the event that the replica's VM reported ready at `START`."""
    return VmReady(an_incarnation(replica_id, incarnation, vm_generation), START)


def exited(
    replica_id: ReplicaId,
    status: int | None = None,
    *,
    signal: int | None = None,
    error: ProgramError | None = None,
    cause: ExitCause = ExitCause.PROCESS,
    out_of_memory: bool = False,
    tail: str = "",
    ran_s: float | None = None,
    incarnation: int = 1,
    vm_generation: int = 1,
    attempt: int = 1,
    seconds: float = 100,
) -> ReplicaExited:
    """Return the event that the replica's program ended at `at(seconds)`."""
    return ReplicaExited(
        an_incarnation(replica_id, incarnation, vm_generation, attempt),
        at(seconds),
        cause=cause,
        exit_status=status,
        signal=signal,
        out_of_memory=out_of_memory,
        error=error,
        tail=tail,
        ran_s=ran_s,
    )


def lost(
    replica_id: ReplicaId,
    cause: LossCause = LossCause.PREEMPTION,
    incarnation: int = 1,
    vm_generation: int = 1,
    seconds: float = 100,
) -> VmLost:
    """Return the event that the replica's VM was lost at `at(seconds)`."""
    return VmLost(an_incarnation(replica_id, incarnation, vm_generation), at(seconds), cause)


def a_tuning_spec(
    training_input: Mapping[str, object] | None = None, **hyperparameters: Any
) -> dict[str, object]:
    """Return the job file of a tuning job with two parameters and one VM per trial."""
    params = [
        {"parameterName": "layers", "type": "INTEGER", "minValue": 1, "maxValue": 3},
        {"parameterName": "width", "type": "DISCRETE", "discreteValues": [16, 32]},
    ]
    one_vm = {"scaleTier": "BASIC", "masterType": None, "workerType": None, "workerCount": None}
    search = {
        "goal": "MAXIMIZE",
        "params": params,
        "maxTrials": 3,
        "maxParallelTrials": 2,
        "hyperparameterMetricTag": "accuracy",
        **hyperparameters,
    }
    return a_spec(**{**one_vm, "hyperparameters": search, **(training_input or {})})
