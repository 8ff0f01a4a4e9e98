"""ML units, in which the service counted what a job used: `trainingOutput.consumedMLUnits`.

A machine's units an hour were its Compute price of then (us-central1) over 0.49 USD, the price of one unit; the tests
have the service's published figures. Only the machines that it sold have any. What has been bought since costs what
Google bills, and this is no bill.
"""

from __future__ import annotations

import re
from typing import Final

from shared.core.jobs import Accelerator, Job, TaskGroup

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


def consumed(job: Job) -> float | None:
    """Of a job that has ended: from RUNNING to its end, for every machine that it asked for. None where unknown."""
    if job.started_at is None or job.ended_at is None:
        return None
    hourly = [units_per_hour(group) for group in job.plan.groups]
    known = [units for units in hourly if units is not None]
    if len(known) < len(hourly):
        return None
    return round(sum(known) * (job.ended_at - job.started_at).total_seconds() / 3600, 2)


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
