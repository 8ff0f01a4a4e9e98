"""Resolve the purchase of each role's VMs from `spot`, `reservation` and `queue` of a job file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainmaster.core.model.purchase import (
    QUEUED_PRICES,
    OnDemand,
    PriceClass,
    Purchase,
    Reserved,
    Spot,
)
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.reconcile.machine_families import has_gpus
from trainmaster.jobspec.formats.placement import SpotSpec, SpotUse


def with_purchases(
    groups: Sequence[TaskGroup],
    spot: SpotSpec,
    spot_use: SpotUse | None,
    reservation: str | None,
    queue: str | None = None,
) -> tuple[TaskGroup, ...]:
    """Return the groups with the purchase of their VMs.

    `spot_use`: use of Spot VMs by the format's own field, which `spot` overrides. `queue`: name of
    the queue of a TPU slice, as the job file has it; None: none. A queue in `QUEUED_PRICES` sets
    the price of all machines as well, and overrides Spot. `spot.on_demand_after`: number of lost
    VMs after which the next one is bought without Spot.

    A reservation is for one machine type: in a job with GPUs, for the machines that have them.
    """
    use = spot.use or spot_use
    job_has_gpus = any(has_gpus(group) for group in groups)
    bought = []
    for group in groups:
        steady: OnDemand | Reserved = OnDemand()
        if reservation is not None and (has_gpus(group) or not job_has_gpus):
            steady = Reserved(reservation)
        price: PriceClass = steady
        if _is_spot(use, group.task_type):
            price = Spot(spot.on_demand_after, steady)
        if queue is not None and queue in QUEUED_PRICES:
            price = QUEUED_PRICES[queue]
        is_queued = queue is not None and group.tpu is not None
        bought.append(replace(group, purchase=Purchase(price, is_queued)))
    return tuple(bought)


def _is_spot(use: SpotUse | None, task_type: TaskType) -> bool:
    return use is SpotUse.ALL or (use is SpotUse.WORKERS and task_type is TaskType.WORKER)
