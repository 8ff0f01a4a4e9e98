"""What a job has used: hours of its machines, and ML units, in which the service counted (`consumedMLUnits`).

A machine's units an hour were its Compute price of then (us-central1) over 0.49 USD, the price of one unit; the tests
have the service's published figures. Only the machines that it sold have any. What has been bought since costs what
Google bills, and this is no bill: an installation that wants to see money says what a unit costs it.

Counted as the service did, from RUNNING to the end for every machine that was asked for, and until now while it runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.core.model.job import Accelerator, Job, TaskGroup
from shared.presentation.price import Price

_USD_OF_A_UNIT: Final = 0.49
_USD_OF_A_VCPU: Final = {"standard": 0.0475, "highmem": 0.0592, "highcpu": 0.03545}  # with its share of memory
_USD_OF_A_GPU: Final = {
    "nvidia-tesla-k80": 0.45,
    "nvidia-tesla-p100": 1.46,
    "nvidia-tesla-v100": 2.48,
    "nvidia-tesla-p4": 0.60,
    "nvidia-tesla-t4": 0.35,
}
_N1: Final = re.compile(r"n1-(standard|highmem|highcpu)-(\d+)")


@dataclass(frozen=True, slots=True)
class Usage:
    """`ml_units` and `cost` are None where a machine of the job has no units, or units have no price."""

    machine_hours: float
    ml_units: float | None
    cost: Price | None

    @property
    def words(self) -> str:
        """`3.60 machine-hours, 1.16 ML units, 0.57 USD`."""
        said = [f"{self.machine_hours:.2f} machine-hours"]
        said += [] if self.ml_units is None else [f"{self.ml_units:.2f} ML units"]
        said += [self.cost.words] if self.cost else []
        return ", ".join(said)


def usage(job: Job, now: datetime, price: Price | None = None) -> Usage:
    """Until its end, or now; nothing before RUNNING. `price`: of one ML unit."""
    hours = _running_h(job, now)
    units = _units(job, hours)
    cost = None if price is None or units is None else price.times(units)
    return Usage(round(sum(group.count * group.hosts for group in job.plan.groups) * hours, 2), units, cost)


def consumed(job: Job) -> float | None:
    """Of a job that has ended, in ML units. None where unknown."""
    if job.started_at is None or job.ended_at is None:
        return None
    return _units(job, _running_h(job, job.ended_at))


def _running_h(job: Job, now: datetime) -> float:
    """Of a tuning job those of its trials, which all have the machines of its plan."""
    spells = [(job.started_at, job.ended_at)]
    if job.tuning is not None:
        spells = [(trial.started_at, trial.ended_at or job.ended_at) for trial in job.tuning.trials]
    return sum(max(((end or now) - begin).total_seconds(), 0.0) for begin, end in spells if begin) / 3600


def _units(job: Job, hours: float) -> float | None:
    hourly = [units_per_hour(group) for group in job.plan.groups]
    known = [units for units in hourly if units is not None]
    return round(sum(known) * hours, 2) if len(known) == len(hourly) else None


def units_per_hour(group: TaskGroup) -> float | None:
    """Of all machines of the role; None for what the service never sold."""
    match = _N1.fullmatch(group.machine_type)
    gpu_usd = _gpus(group.accelerator)
    if match is None or gpu_usd is None or group.tpu is not None:
        return None
    usd = int(match[2]) * _USD_OF_A_VCPU[match[1]] + gpu_usd
    return group.count * usd / _USD_OF_A_UNIT


def _gpus(accelerator: Accelerator | None) -> float | None:
    if accelerator is None:
        return 0.0
    usd = _USD_OF_A_GPU.get(accelerator.type)
    return None if usd is None else usd * accelerator.count
