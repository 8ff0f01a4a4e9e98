"""The machine that a replica has now, from the stored state of its job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.cli.options import parse_replica
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.tuning import trial_id
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import PermanentError

ON_A_VM: Final = (ReplicaState.RUNNING, ReplicaState.RESTARTING)
"""States in which the replica has a VM whose agent has reported."""
_TRIALS_SHOWN: Final = 10
"""Live trials that an error names."""


@dataclass(frozen=True, slots=True)
class Target:
    """A VM, or one host of a TPU node."""

    vm: str
    """Name of the VM or of the TPU node."""
    zone: str
    is_tpu: bool
    host: int
    """Number of the host, from 0; 0 for a VM."""
    has_container: bool
    """Whether the replica's program runs in a container."""
    replica: str
    """The replica in words, such as `worker 1`."""


def find_target(state: State, replica: str, host: int) -> Target:
    """Return the machine of the replica `replica`, such as `worker-1`.

    Raises PermanentError, with what to do, if the job has no such replica or host, or the replica
    has no VM now.
    """
    job = state.job
    _require_replicas(job)
    replica_id = parse_replica(replica, job)
    found = state.find(job.attempt, replica_id)
    if found is None:
        raise PermanentError(
            f"{replica_id.words} of {job.job_id} is not stored in attempt {job.attempt}; try again"
        )
    group = job.placed.plan.group(replica_id.task_type)
    if not 0 <= host < group.hosts:
        raise PermanentError(
            f"--host {host}: {replica_id.words} has {group.hosts} hosts, numbered from 0"
        )
    _require_vm(job, found)
    program = job.plan.program_of(replica_id.task_type)
    return Target(
        vm=vm_name(job.set_id, replica_id),
        zone=job.zone,
        is_tpu=group.tpu is not None,
        host=host,
        has_container=program.container is not None,
        replica=replica_id.words,
    )


def _require_replicas(job: Job) -> None:
    if job.tuning is None:
        return
    live = [trial_id(job.job_id, trial.number) for trial in job.tuning.live]
    advice = "and it has no live trial"
    if live:
        advice = f"its live trials have: {', '.join(live[:_TRIALS_SHOWN])}"
    raise PermanentError(f"{job.job_id} is a tuning job, which has no replicas; {advice}")


def _require_vm(job: Job, replica: Replica) -> None:
    name = f"{replica.replica_id.words} of {job.job_id}"
    if job.state.is_terminal:
        raise PermanentError(f"{name} has no VM: the job is {job.state}{_since(job.ended_at)}")
    if replica.state in ON_A_VM:
        return
    if replica.state is ReplicaState.COMPLETED:
        since = replica.done_at
        advice = "Its VM is deleted"
    else:
        since = replica.ordered_at
        advice = "Try again when it is RUNNING"
    raise PermanentError(f"{name} is not running: it is {replica.state}{_since(since)}. {advice}")


def _since(moment: datetime | None) -> str:
    return f" since {moment:%Y-%m-%d %H:%M:%S} UTC" if moment else ""
