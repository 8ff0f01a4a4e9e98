"""The admission queue: jobs wait in QUEUED while the project's own limits leave no capacity for
them.

A limit is on a resource: `vcpus`, `gpus`, `tpus`, `disk_gib` (boot disks), or one type of
accelerator by Compute Engine's or Cloud TPU's name; `usd_per_hour` is the most that a job's
machines cost at list prices. `run_hours` is not shared: it limits the `maxRunningTime` of each job.
Only jobs that need a limited resource ever wait. Among those that need the same resource, the
higher priority goes first, then the older job. No job overtakes another, so that small jobs do not
starve a large one. Source: `scheduling.priority` of AI Platform Training (the service): larger
first, among jobs that request the same accelerator.

A limit `team:NAME` is the weight of the jobs with the label `team=NAME` instead. All other jobs are
one team with the weight 1. With weights, the next job is that of the team that uses the smallest
share per weight, by the resource of which it uses the largest share; priority and age order the
jobs within a team. A team that is alone may use everything. Source: dominant resource fairness
(Ghodsi et al., 2011), without preemption.

An admission pass (`flows.provisioning.admission`) reads all live jobs, starts those that may start,
and stores why the others wait. Here is what it decides; nothing is read or written.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil
from typing import Final, NamedTuple

from trainmaster.core.machines.gpus import GPUS as GPU_TYPES
from trainmaster.core.machines.machine_types import find_machine_type
from trainmaster.core.machines.tpus import GENERATIONS
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import TaskGroup

VCPUS: Final = "vcpus"
GPUS: Final = "gpus"
TPUS: Final = "tpus"
DISK_GIB: Final = "disk_gib"
RUN_HOURS: Final = "run_hours"
USD_PER_HOUR: Final = "usd_per_hour"
RESOURCES: Final = (
    VCPUS,
    GPUS,
    TPUS,
    DISK_GIB,
    RUN_HOURS,
    USD_PER_HOUR,
    *GPU_TYPES,
    *(generation.prefix for generation in GENERATIONS.values()),
)
"""Resources that a limit can name. A type of accelerator that is not known here cannot be requested
either.
"""
HOUR_S: Final = 3600
TEAM: Final = "team"
"""Label of jobs, and beginning of the names of weights."""

NEVER: Final = datetime.min.replace(tzinfo=UTC)
"""Time of the pass that stored the queue, if none has."""

Limits = Mapping[str, int]
"""Resource, and how much of it all jobs together may use; or `team:NAME`, and the weight of its
jobs, at least 1.
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job is not admitted."""

    job_id: str
    position: int
    """Position in the admission queue; 1 is next."""
    reason: str
    """The resource that is short, in words."""

    @property
    def sentence(self) -> str:
        return f"Position {self.position} in the admission queue: {self.reason}."


@dataclass(frozen=True, slots=True)
class AdmissionQueue:
    """The jobs that an admission pass could not admit.

    It is stored, so that no other request has to read all jobs for it.
    """

    read_at: datetime = NEVER
    """Time of the pass, from before it read the live jobs."""
    waits: Mapping[str, Wait] = field(default_factory=dict)
    """Id of the job, and why it waits."""
    live_count: int = 0
    """How many live jobs the pass read."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """The limits under which it decided."""
    is_cut: bool = False
    """Whether more jobs wait than can be stored."""

    def has_seen(self, job: Job) -> bool:
        """Whether the pass has decided about this queued job, so that it waits for a later pass."""
        is_left_out = self.is_cut and job.created_at < self.read_at
        return job.job_id in self.waits or is_left_out


def waits_for_admission(job: Job) -> bool:
    """Whether only an admission pass decides about the job, if there are limits.

    A tuning job is not admitted: it starts with its first trial.
    """
    return job.state is JobState.QUEUED and job.tuning is None


def resource_needs(plan: Plan) -> Counter[str]:
    """Return what a job may use, by resource; with alternatives, the most of each that one of them
    uses.
    """
    needs: Counter[str] = Counter({USD_PER_HOUR: plan.limits.usd_per_hour})
    if plan.where.options:
        for option in plan.where.options:
            where = replace(plan.where, options=())
            needs |= resource_needs(replace(plan, groups=option.groups, where=where))
        return +needs
    return +(needs + needs_of_groups(plan.groups))


def needs_of_groups(groups: Iterable[TaskGroup]) -> Counter[str]:
    """Return what these roles use, by resource."""
    needs: Counter[str] = Counter()
    for group in groups:
        needs[VCPUS] += group.count * vcpus(group.machine_type)
        needs[DISK_GIB] += 0 if group.tpu else group.count * group.boot_disk_gib
        for resource, count in _accelerators(group):
            needs[resource] += group.count * count
    return +needs


def limit_problem(plan: Plan, limits: Limits) -> str | None:
    """Return why a job could never be admitted, in the service's words; None if it could."""
    needs = resource_needs(plan)
    needs[RUN_HOURS] = ceil(plan.limits.max_running_s / HOUR_S)
    for resource, limit in limits.items():
        if needs[resource] > limit:
            request = f"{amount_words(needs[resource])} {resource}"
            return f"The request for {request} exceeds the allowed maximum of {limit} {resource}."
    return None


def queued_jobs(jobs: Iterable[Job], limits: Limits) -> tuple[Wait, ...]:
    """Return all jobs that may not start yet, in the order of the queue.

    `jobs` are all that have not ended.
    """
    waits: list[Wait] = []
    for turn in _turns(jobs, limits):
        needs = _needs(turn.job)
        short = [
            name
            for name, limit in limits.items()
            if needs[name] and round(turn.used[name] + needs[name], 2) > limit
        ]
        if short:
            reason = _reason(short[0], needs, turn.used, limits) + turn.share_words
            waits.append(Wait(turn.job.job_id, len(waits) + 1, reason))
    return tuple(waits)


def used_resources(jobs: Iterable[Job]) -> Counter[str]:
    """Return what all jobs use that have left the queue. `jobs` are all that have not ended."""
    used: Counter[str] = Counter()
    for job in jobs:
        used.update(_needs(job) if job.state is not JobState.QUEUED else {})
    return used


def admissible_jobs(jobs: Iterable[Job], waits: Iterable[Wait], limits: Limits) -> tuple[Job, ...]:
    """Return the queued jobs that may start now, in the order of the queue.

    `jobs` are all that have not ended, and `waits` those of them that may not start.
    """
    waiting = {wait.job_id for wait in waits}
    queued = (turn.job for turn in _turns(jobs, limits))
    return tuple(job for job in queued if waits_for_admission(job) and job.job_id not in waiting)


def wait_of_job(job: Job, read_queue: Callable[[], AdmissionQueue], limits: Limits) -> Wait | None:
    """Return why the job had to wait in the last pass; None if it does not wait, or no pass has
    seen it.

    `read_queue`: called only for a job that may have to wait.
    """
    return read_queue().waits.get(job.job_id) if job.state is JobState.QUEUED and limits else None


def is_weight(name: str) -> bool:
    """Return whether this is the name of a team's weight, and not of a resource."""
    return name.startswith(f"{TEAM}:")


def amount_words(amount: float) -> str:
    """Return an amount of a resource: a whole number, or USD with cents."""
    return f"{amount:.2f}".removesuffix(".00")


def vcpus(machine_type: str) -> int:
    """Return the vCPUs of the machine type; 0 for an empty name, as TPU slices have."""
    machine = find_machine_type(machine_type)
    return machine.vcpus if machine else 0


class _Turn(NamedTuple):
    """The turn of a queued job."""

    job: Job
    used: Counter[str]
    """What is in use, or reserved for jobs before it, by resource. It changes with the next turn.
    """
    share_words: str
    """The share of its team, as the end of a sentence; empty without weights."""


def _turns(jobs: Iterable[Job], limits: Limits) -> Iterator[_Turn]:
    """Yield the queued jobs in the order of the queue."""
    used: Counter[str] = Counter()
    by_team: defaultdict[str, Counter[str]] = defaultdict(Counter)
    queues: defaultdict[str, deque[Job]] = defaultdict(deque)
    for job in sorted(jobs, key=_by_priority_and_age):
        if job.state is JobState.QUEUED:
            queues[_team_of(job, limits)].append(job)
        else:
            for counter in (used, by_team[_team_of(job, limits)]):
                counter.update(_needs(job))

    def share(team: str) -> float:
        """Return the largest share that the team has of any resource."""
        return max(
            (by_team[team][name] / limit for name, limit in limits.items() if limit), default=0.0
        )

    def weight(team: str) -> int:
        return limits.get(team, 1)

    has_weights = any(map(is_weight, limits))
    while queues:
        team = min(
            queues,
            key=lambda team: (share(team) / weight(team), _by_priority_and_age(queues[team][0])),
        )
        job = queues[team].popleft()
        words = (
            f"; the share of {team or 'all other jobs'} is {share(team):.0%}, its weight is"
            f" {weight(team)}"
        )
        yield _Turn(job, used, words if has_weights else "")
        can_ever_start = limit_problem(job.plan, limits) is None
        if can_ever_start:  # reserved for a waiting job, too: later jobs must not overtake it
            for counter in (used, by_team[team]):
                counter.update(_needs(job))
        if not queues[team]:
            del queues[team]


def _by_priority_and_age(job: Job) -> tuple[int, datetime, str]:
    """Return the key that sorts the higher priority first, then the older job."""
    return -job.plan.limits.priority, job.created_at, job.job_id


def _team_of(job: Job, limits: Limits) -> str:
    """Return the name of the weight of the job's team; empty for a job of no team in `limits`."""
    names = (f"{TEAM}:{label.value}" for label in job.labels if label.key == TEAM)
    return next((name for name in names if name in limits), "")


def _needs(job: Job) -> Counter[str]:
    """Return what a job may use until it ends.

    With alternatives it is the most of all of them: a running job that loses its VMs may move to
    another one, and is not admitted again. A tuning job has no VMs of its own.
    """
    return Counter() if job.tuning else resource_needs(job.plan)


def _accelerators(group: TaskGroup) -> list[tuple[str, int]]:
    """Return the accelerators per replica, by type and in total."""
    if group.tpu is not None:
        tpu_type, _, size = group.tpu.type.rpartition("-")
        return [(tpu_type, int(size)), (TPUS, int(size))]
    if group.accelerator is not None:
        return [(group.accelerator.type, group.accelerator.count), (GPUS, group.accelerator.count)]
    return []


def _reason(resource: str, needs: Counter[str], used: Counter[str], limits: Limits) -> str:
    return (
        f"it needs {amount_words(needs[resource])} {resource}, and {amount_words(used[resource])}"
        f" of {limits[resource]} are in use or reserved for jobs before it"
    )
