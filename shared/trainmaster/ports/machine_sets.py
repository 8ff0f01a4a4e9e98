"""Reading the machine set of a job: the VMs that it shares with the jobs before and after it."""

from __future__ import annotations

from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.ports.store import States


def machine_set_of(job: Job, store: States) -> MachineSet | None:
    """Return the job's machine set. None: its machines have never been kept.

    A job without `keepMachines` has no machine set, so that nothing is read.
    """
    loaded = store.load(job.job_id) if job.machines else None
    return loaded.state.machine_set if loaded else None
