"""The properties that a job must have in common with the machines that it takes."""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.capacity import machine_kind
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import FitItem, MachineSet
from trainmaster.core.model.owner import owner
from trainmaster.core.model.purchase import Reserved
from trainmaster.core.model.task_group import TaskGroup

TUNING_JOB: Final = "the tuning job"
"""Name of the item that only trials of one tuning job have in common."""
RESOURCE: Final = "the persistent resource"
"""Name of the item with the `persistentResourceId` of the jobs."""
NONE: Final = "(none)"
"""Value of an item that a job does not have. The parentheses distinguish it from a tuning job or
resource with the name `none`.
"""
ROLE: Final = "the machine of each "
"""Beginning of the names of items about one role. They are compared only for roles that both jobs
have.
"""


def fit_of(job: Job) -> tuple[FitItem, ...]:
    """Return the properties of all machines of the job, and then one item for each role.

    `job`: with the plan of one candidate, a zone and the kind of machines that is requested there.
    """
    plan = job.plan
    access = plan.access
    return (
        FitItem("the submitter", owner(job).words),
        FitItem("the service account", access.service_account or "the default"),
        FitItem(TUNING_JOB, job.trial_of.job_id if job.trial_of else NONE),
        FitItem(RESOURCE, plan.persistent_resource or NONE),
        FitItem("the network", access.network or "the default"),
        FitItem("the encryption key", access.kms_key or "Google's"),
        FitItem("the runtime", plan.image.runtime),
        FitItem("the boot image", plan.image.source),
        *(FitItem(f"{ROLE}{group.task_type}", _machine_words(group)) for group in plan.groups),
    )


def may_share(job: Job) -> bool:
    """Whether other jobs may have its machines: those of the same known submitter, or other trials
    of the same tuning job.
    """
    return bool(owner(job).user) or job.trial_of is not None


def trials_of(machines: MachineSet) -> str:
    """Return the tuning job whose trials hold the machines, one after another; `NONE`: none."""
    return next(item.value for item in machines.fit if item.name == TUNING_JOB)


def resource_of(machines: MachineSet) -> str | None:
    """Return the `persistentResourceId` that the machines are kept for; None: there is none."""
    value = next((item.value for item in machines.fit if item.name == RESOURCE), NONE)
    return None if value == NONE else value


def _machine_words(group: TaskGroup) -> str:
    """Return `n1-standard-8 with 2 x nvidia-tesla-t4 and 100 GiB pd-ssd`; without GPUs,
    `n1-standard-8 with 100 GiB pd-ssd`.
    """
    price = group.purchase.price
    kind = machine_kind(group, price)
    source = f" from the reservation {price.name}" if isinstance(price, Reserved) else ""
    joint = "and" if group.accelerator else "with"
    return f"{kind} {joint} {group.boot_disk_gib} GiB {group.boot_disk_type}{source}"
