"""Which state may follow which, and why each edge exists. `shared.core.evolve` refuses every other one."""

from __future__ import annotations

from typing import Final

from shared.core.model.job import JobState
from shared.core.model.replica import ReplicaState

J = JobState
R = ReplicaState

JOB_EDGES: Final = {
    (J.QUEUED, J.PREPARING): "provisioning began",
    (J.QUEUED, J.CANCELLED): "cancelled, or waited too long, before anything was created",
    (J.PREPARING, J.RUNNING): "every replica has been ready",
    (J.PREPARING, J.SUCCEEDED): "the primary was done before the last peer was up",
    (J.PREPARING, J.FAILED): "a permanent error, or a budget spent, before the last peer was up",
    (J.PREPARING, J.CANCELLED): "cancelled by the user, or maxWaitTime passed",
    (J.RUNNING, J.SUCCEEDED): "the primary exited 0",
    (J.RUNNING, J.FAILED): "a permanent error, or a budget spent",
    (J.RUNNING, J.CANCELLED): "cancelled by the user, or maxRunningTime passed",
}
"""A rerun keeps RUNNING: its clients saw the job start once, and maxRunningTime counts from there."""

REPLICA_EDGES: Final = {
    (R.WAITING, R.RUNNING): "the agent says it is ready",
    (R.WAITING, R.RESTARTING): "it exited before its vm-ready was delivered",
    (R.WAITING, R.REPLACING): "its VM was lost before the agent spoke",
    (R.WAITING, R.HELD): "it died of a peer's loss before its vm-ready was delivered",
    (R.WAITING, R.COMPLETED): "it exited 0 before its vm-ready was delivered",
    (R.RUNNING, R.RESTARTING): "non-zero exit: the next incarnation in the same VM",
    (R.RUNNING, R.REPLACING): "its VM is going or gone",
    (R.RUNNING, R.HELD): "it died of a peer's loss",
    (R.RUNNING, R.COMPLETED): "it exited 0",
    (R.RESTARTING, R.RUNNING): "the next incarnation is up",
    (R.RESTARTING, R.RESTARTING): "the next incarnation exited before its vm-ready was delivered",
    (R.RESTARTING, R.REPLACING): "the VM was lost while it restarted",
    (R.RESTARTING, R.HELD): "the next incarnation died of a peer's loss before its vm-ready was delivered",
    (R.RESTARTING, R.COMPLETED): "the next incarnation exited 0 before its vm-ready was delivered",
    (R.REPLACING, R.RUNNING): "the new VM's agent says it is ready",
    (R.REPLACING, R.RESTARTING): "it exited on the new VM before its vm-ready was delivered",
    (R.REPLACING, R.REPLACING): "the new VM was lost too",
    (R.REPLACING, R.HELD): "it died of a peer's loss on the new VM before its vm-ready was delivered",
    (R.REPLACING, R.COMPLETED): "it exited 0 on the new VM before its vm-ready was delivered",
    (R.HELD, R.RUNNING): "its peers are back and its next incarnation is up",
    (R.HELD, R.RESTARTING): "its next incarnation exited before its vm-ready was delivered",
    (R.HELD, R.REPLACING): "its VM was lost while it waited for its peers",
    (R.HELD, R.HELD): "its next incarnation died of another loss before its vm-ready was delivered",
    (R.HELD, R.COMPLETED): "its next incarnation exited 0 before its vm-ready was delivered",
    (R.COMPLETED, R.WAITING): "it exited 0, and the primary, which may wait for it, begins another incarnation",
}
