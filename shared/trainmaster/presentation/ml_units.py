"""The usage of a job in machine-hours and in ML units (`consumedMLUnits`), the unit of AI Platform
Training (the service).

A machine's ML units per hour are its former Compute Engine price in us-central1, divided by 0.49
USD, the price of one unit; the tests have the figures that the service published. Only machines
that the service offered have ML units. This is not a bill: Google bills current prices. An
installation that wants to show a cost configures the price of a unit.

Usage is counted as the service did: for every machine of the job from RUNNING to the end, or until
now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.model.money import Money
from trainmaster.core.model.task_group import Accelerator, TaskGroup

_USD_PER_UNIT: Final = 0.49
_USD_PER_VCPU_HOUR: Final = {"standard": 0.0475, "highmem": 0.0592, "highcpu": 0.03545}
"""Price of a vCPU with its memory, by kind of machine type."""
_USD_PER_GPU_HOUR: Final = {
    "nvidia-tesla-k80": 0.45,
    "nvidia-tesla-p100": 1.46,
    "nvidia-tesla-v100": 2.48,
    "nvidia-tesla-p4": 0.60,
    "nvidia-tesla-t4": 0.35,
}
_N1: Final = re.compile(r"n1-(?P<kind>standard|highmem|highcpu)-(?P<vcpus>\d+)")


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a job."""

    machine_hours: float
    ml_units: float | None
    """None if the job has a machine without ML units."""
    cost: Money | None
    """None if ML units are unknown or have no price."""

    @property
    def words(self) -> str:
        """`3.60 machine-hours, 1.16 ML units, 0.57 USD`."""
        parts = [f"{self.machine_hours:.2f} machine-hours"]
        if self.ml_units is not None:
            parts.append(f"{self.ml_units:.2f} ML units")
        if self.cost is not None:
            parts.append(self.cost.words)
        return ", ".join(parts)


def usage(job: Job, now: datetime, unit_price: Money | None = None) -> Usage:
    """Return the usage from RUNNING until the end, or until now."""
    hours = _running_hours(job, now)
    units = _ml_units(job, hours)
    cost = None if unit_price is None or units is None else unit_price.times(units)
    machines = sum(group.count * group.hosts for group in job.placed.plan.groups)
    return Usage(round(machines * hours, 2), units, cost)


def consumed_ml_units(job: Job) -> float | None:
    """Return the ML units of a job that has ended; None if it has not, or if they are unknown."""
    if job.started_at is None or job.ended_at is None:
        return None
    return _ml_units(job, _running_hours(job, job.ended_at))


def ml_units_per_hour(group: TaskGroup) -> float | None:
    """Return the ML units per hour of a role; None: the service did not offer such machines."""
    match = _N1.fullmatch(group.machine_type)
    gpu_usd = _gpu_usd_per_hour(group.accelerator)
    if match is None or gpu_usd is None or group.tpu is not None:
        return None
    usd = int(match["vcpus"]) * _USD_PER_VCPU_HOUR[match["kind"]] + gpu_usd
    return group.count * usd / _USD_PER_UNIT


def _running_hours(job: Job, now: datetime) -> float:
    """Return how long the job has run; for a tuning job the sum of its trials.

    Each trial has the same machines.
    """
    periods = [(job.started_at, job.ended_at)]
    if job.tuning is not None:
        periods = [
            (trial.started_at, trial.ended_at or job.ended_at) for trial in job.tuning.trials
        ]
    running_s = 0.0
    for begin, end in periods:
        if begin is not None:
            running_s += max(((end or now) - begin).total_seconds(), 0.0)
    return running_s / 3600


def _ml_units(job: Job, hours: float) -> float | None:
    """Return the ML units that the job uses in `hours`.

    None: a machine has no ML units, or the alternatives have different ones.
    """
    alternatives = {option.groups for option in job.plan.where.options} or {job.plan.groups}
    per_hour = {tuple(map(ml_units_per_hour, groups)) for groups in alternatives}
    if len(per_hour) > 1:
        return None
    known = [units for units in next(iter(per_hour)) if units is not None]
    if len(known) < len(job.plan.groups):
        return None
    return round(sum(known) * hours, 2)


def _gpu_usd_per_hour(accelerator: Accelerator | None) -> float | None:
    if accelerator is None:
        return 0.0
    usd = _USD_PER_GPU_HOUR.get(accelerator.type)
    return None if usd is None else usd * accelerator.count
