"""Which jobs need a reconciliation, decided without reading their replicas.

    job that has not ended
      ├─► runs, all replicas RUNNING or COMPLETED, one listed VM each ──► nothing to do
      └─► anything else ────────────────────────────────────────────────► provision reconciles

A reconciliation reads all replicas of a job and lists its VMs. A healthy job of 1,000 replicas is
therefore judged by two counts and by its share of one listing of all VMs. The counts do not show a
lost VM if another VM exists that should not. The reconciliation that every job gets every
`FULL_RECONCILIATION_MINUTES` finds such a pair. Each of the two alone changes a count.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name

FULL_RECONCILIATION_MINUTES: Final = 10
"""Minutes between two reconciliations of a job that seems to be healthy."""

CHANGING: Final = tuple(
    state for state in ReplicaState if state not in (ReplicaState.RUNNING, ReplicaState.COMPLETED)
)
"""States of replicas whose VM may differ from the desired one, or whose agent must report within a
time.
"""


def needs_reconciliation(job: Job, now: datetime) -> bool:
    """Return whether `provision` must reconcile this live job, whatever VMs it has.

    TPU slices are few, and may wait in Cloud TPU's queue. A tuning job has no VMs, but its trials
    have.
    """
    if job.state is not JobState.RUNNING or job.tuning is not None or job.plan.tpu_zones:
        return True
    return job.round.is_held or bool(job.round.without) or is_full_reconciliation(job, now)


def is_full_reconciliation(job: Job, now: datetime) -> bool:
    """Return whether this is the job's minute for looking at everything."""
    minute = int(now.timestamp()) // 60
    return (minute + zlib.crc32(job.job_id.encode())) % FULL_RECONCILIATION_MINUTES == 0


def are_vms_expected(job: Job, running: int, changing: int, vms: Sequence[Vm]) -> bool:
    """Return whether the VMs of a running job are those that its replicas need.

    `running` is the number of RUNNING replicas, `changing` the number of those in a state of
    `CHANGING`.
    """
    if changing or len(vms) != running:
        return False
    if any(vm.status is not VmStatus.RUNNING or vm.zone != job.zone for vm in vms):
        return False
    names = {vm.name for vm in vms}
    return len(names) == running and names <= {
        vm_name(job.set_id, replica_id) for replica_id in job.plan.replica_ids
    }
