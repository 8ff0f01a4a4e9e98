"""Reading the machine set of a job."""

from __future__ import annotations

from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.ports.store import States


def machine_set_of(job: Job, store: States) -> MachineSet | None:
    """Return the job's machine set. None: its machines have never been kept. No read without
    `keepMachines`.
    """
    loaded = store.load(job.job_id) if job.machines else None
    return loaded.state.machine_set if loaded else None
