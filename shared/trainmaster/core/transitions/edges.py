"""Which state may follow which, and why.

`trainmaster.core.transitions.change` refuses every other edge.

A job runs once in each attempt, and a rerun is the change to the next one. An incarnation is one
execution of a replica's program: before each, the agent reports with `vm-ready` that the replica is
ready. Members of a synchronous job start together, in rounds. The primary is the replica whose
success is that of the job.
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import ReplicaState

J = JobState
R = ReplicaState

JOB_EDGES: Final = {
    (J.QUEUED, J.PREPARING): "provisioning began",
    (J.QUEUED, J.CANCELLED): "cancelled, or maxWaitTime passed, before any VM was requested",
    (J.PREPARING, J.RUNNING): "every replica has been ready",
    (J.PREPARING, J.SUCCEEDED): "the primary completed before the last peer was ready",
    (
        J.PREPARING,
        J.FAILED,
    ): "a permanent error, or a used-up budget, before the last peer was ready",
    (J.PREPARING, J.CANCELLED): "cancelled by the user, or maxWaitTime passed",
    (J.RUNNING, J.SUCCEEDED): "the primary exited 0",
    (J.RUNNING, J.FAILED): "a permanent error, or a used-up budget",
    (J.RUNNING, J.CANCELLED): "cancelled by the user, or maxRunningTime passed",
}
"""A rerun keeps RUNNING: clients see the job start once, and maxRunningTime counts from there."""

REPLICA_EDGES: Final = {
    (R.WAITING, R.RUNNING): "the agent reported it ready",
    (R.WAITING, R.RESTARTING): "it could not be set up, and the policy restarts it",
    (R.WAITING, R.REPLACING): "its VM was lost before the agent reported",
    (R.WAITING, R.COMPLETED): "it exited 0 in the attempt before, or the job may run without it",
    (R.RUNNING, R.RUNNING): "a member is ready for the next round",
    (R.RUNNING, R.RESTARTING): "non-zero exit: the next incarnation starts in the same VM",
    (R.RUNNING, R.REPLACING): "its VM is lost, or about to be",
    (R.RUNNING, R.COMPLETED): "it exited 0, or was given up",
    (R.COMPLETED, R.COMPLETED): "its VM, which the job would have kept, is lost",
    (R.RESTARTING, R.RUNNING): "the next incarnation is ready",
    (R.RESTARTING, R.RESTARTING): "the next incarnation exited before its vm-ready was delivered",
    (R.RESTARTING, R.REPLACING): "the VM was lost during the restart",
    (R.RESTARTING, R.COMPLETED): "the next incarnation exited 0 before its vm-ready was delivered",
    (R.REPLACING, R.RUNNING): "the agent on the new VM reported it ready",
    (R.REPLACING, R.RESTARTING): "it exited on the new VM before its vm-ready was delivered",
    (R.REPLACING, R.REPLACING): "the new VM was lost too",
    (R.REPLACING, R.COMPLETED): "it exited 0 on the new VM before its vm-ready was delivered",
}
