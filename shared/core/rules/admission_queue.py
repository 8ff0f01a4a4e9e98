"""Who may start: jobs wait in QUEUED while the project's own limits leave no room for them.

A limit is on a resource: `vcpus`, `gpus`, `tpus`, or one type of accelerator by Compute's or Cloud TPU's name. Only
jobs that need a limited resource ever wait. Among those that need the same one, the more important go first, then the
older; nobody overtakes, so that a large job is not starved by small ones. Source: the service's `scheduling.priority`:
larger first, among jobs that ask for the same accelerator.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shared.core.model.job import Job, JobState
from shared.core.model.plan import Plan, TaskGroup

VCPUS: Final = "vcpus"
GPUS: Final = "gpus"
TPUS: Final = "tpus"

Limits = Mapping[str, int]
"""Resource → the most that all jobs together may use."""

_BUILT_IN: Final = re.compile(r"(?P<series>a2|a3|a4)-(?P<kind>[a-z]+)-(?P<count>\d+)g")
_VCPUS_PER_GPU: Final = {"a2-megagpu": 6, "a3-highgpu": 26, "a3-megagpu": 26, "a3-ultragpu": 28, "a4-highgpu": 28}
_VCPUS_PER_GPU_DEFAULT: Final = 12
"""Source: Compute Engine "GPU machine types"; a2-highgpu and a2-ultragpu have 12 for each of their GPUs."""
_CUSTOM: Final = re.compile(r"-custom-(\d+)-")
_SIZE: Final = re.compile(r"-(\d+)(-lssd)?$")
_SHARED_CORE_VCPUS: Final = 2
"""e2-micro and its kin."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job is not admitted: its place in the line (1: next) and what there is too little of."""

    job_id: str
    position: int
    reason: str


def needs(plan: Plan) -> Counter[str]:
    """What a job uses while it runs, by resource."""
    found: Counter[str] = Counter()
    for group in plan.groups:
        found[VCPUS] += group.count * vcpus(group.machine_type)
        for resource, count in _accelerators(group):
            found[resource] += group.count * count
    return +found


def exceeded(plan: Plan, limits: Limits) -> str | None:
    """The sentence that refuses a job which could never start; None for one that fits. In the service's words."""
    desired = needs(plan)
    for resource, limit in limits.items():
        if desired[resource] > limit:
            return f"The request for {desired[resource]} {resource} exceeds the allowed maximum of {limit} {resource}."
    return None


def waits(jobs: Iterable[Job], limits: Limits) -> tuple[Wait, ...]:
    """Every job in QUEUED that may not start yet, in the order of the line. `jobs`: all that have not ended."""
    live = sorted(jobs, key=lambda job: (-job.plan.priority, job.created_at, job.job_id))
    taken: Counter[str] = Counter()
    for job in live:
        if job.state is not JobState.QUEUED:
            taken.update(_needs(job))
    found: list[Wait] = []
    for job in live:
        if job.state is not JobState.QUEUED:
            continue
        desired = _needs(job)
        short = [name for name, limit in limits.items() if desired[name] and taken[name] + desired[name] > limit]
        if short:
            found.append(Wait(job.job_id, len(found) + 1, _reason(short[0], desired, taken, limits)))
        if exceeded(job.plan, limits) is None:
            taken.update(desired)  # also of one that waits: nobody behind it takes its place
    return tuple(found)


def wait_of(job_id: str, jobs: Iterable[Job], limits: Limits) -> Wait | None:
    """None: the job may start."""
    return next((wait for wait in waits(jobs, limits) if wait.job_id == job_id), None)


def vcpus(machine_type: str) -> int:
    """As the name tells; 0 where there is no machine type, as for TPU slices."""
    if not machine_type:
        return 0
    built_in = _BUILT_IN.fullmatch(machine_type)
    if built_in:
        each = _VCPUS_PER_GPU.get(f"{built_in['series']}-{built_in['kind']}", _VCPUS_PER_GPU_DEFAULT)
        return each * int(built_in["count"])
    sized = _CUSTOM.search(machine_type) or _SIZE.search(machine_type)
    return int(sized[1]) if sized else _SHARED_CORE_VCPUS


def _needs(job: Job) -> Counter[str]:
    """A tuning job has no machines: its trials do."""
    return Counter() if job.tuning else needs(job.plan)


def _accelerators(group: TaskGroup) -> list[tuple[str, int]]:
    """By type and as a whole."""
    if group.tpu is not None:
        kind, _, size = group.tpu.type.rpartition("-")
        return [(kind, int(size)), (TPUS, int(size))]
    if group.accelerator is not None:
        return [(group.accelerator.type, group.accelerator.count), (GPUS, group.accelerator.count)]
    return []


def _reason(resource: str, desired: Counter[str], taken: Counter[str], limits: Limits) -> str:
    return (
        f"it needs {desired[resource]} {resource}, and {taken[resource]} of {limits[resource]} are in use "
        "or promised to jobs before it"
    )
