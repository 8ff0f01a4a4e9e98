"""Resolve whether a job's TPU slice is requested as a queued resource of Cloud TPU.

Only a job that is a single slice may: any other machine of the job would cost money while the slice
waits in the queue. docs/decisions/0021-tpu-queued-resources.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainmaster.core.model.purchase import QUEUED_PRICES
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.jobspec.formats.extension import NO_QUEUE, Extension
from trainmaster.jobspec.formats.placement import SpotUse
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec

_DAY_S: Final = 86_400


def resolve_queue(
    extension: Extension,
    spec: ResolvedSpec,
    groups: Sequence[TaskGroup],
    problems: Problems,
) -> str | None:
    """Return the name of the queue of the job's TPU slice; None: none, or that is a problem."""
    requested = extension.queue
    path: FieldPath = spec.queue_path or (EXTENSION, "queue")
    if spec.queue and requested not in (None, spec.queue):
        problem = f"contradicts {problems.spelled_path(spec.queue_path)}, which is {spec.queue}"
        problems.add((EXTENSION, "queue"), problem, example=spec.queue)
        return None
    queue = spec.queue or requested
    if queue is None or queue == NO_QUEUE:
        return None
    _check_single_slice(queue, path, spec, groups, problems)
    if queue in QUEUED_PRICES:
        _check_price(queue, path, extension, spec, problems)
    return queue


def _check_single_slice(
    queue: str,
    path: FieldPath,
    spec: ResolvedSpec,
    groups: Sequence[TaskGroup],
    problems: Problems,
) -> None:
    if len(groups) < len(spec.roles) or not groups:
        return  # the roles have problems, which are already reported
    example = "queue: none" if path[0] == EXTENSION else 'strategy: "STANDARD"'
    replicas = sum(group.count for group in groups)
    if not any(group.tpu for group in groups):
        offered = "only TPU slices wait in a queue"
        if queue in QUEUED_PRICES:
            offered = QUEUED_PRICES[queue].not_for_vms
        if not offered:
            return
        problem = (
            f"cannot be {queue} for a job of VMs: {offered}. VMs are requested in one zone"
            " after the other until there is capacity, for as long as the job may wait; Spot VMs"
            " (trainmaster.spot) or a reservation (trainmaster.reservation), also a future one in"
            " calendar mode, get GPUs sooner"
        )
        problems.add_text(path, problem, advice=example)
    elif replicas > 1:
        problem = (
            f"cannot be {queue} for a job of {replicas} replicas: only a job of one TPU slice"
            " can wait in a queue"
        )
        problems.add_text(path, problem, advice=example)


def _check_price(
    queue: str, path: FieldPath, extension: Extension, spec: ResolvedSpec, problems: Problems
) -> None:
    """Check a queue that sells at a price of its own."""
    if (extension.spot.use or spec.spot) not in (None, SpotUse.NONE):
        problem = f"cannot combine {queue} with Spot"
        problems.add_text(path, problem, advice="leave out spot, or use the queue STANDARD")
    if extension.reservation:
        example = "leave out the reservation, or use the queue STANDARD"
        problems.add_text(path, f"cannot combine {queue} with a reservation", advice=example)
    run_s_max = QUEUED_PRICES[queue].run_s_max
    if run_s_max is not None and spec.max_running_s > run_s_max:
        days = run_s_max // _DAY_S
        problem = f"cannot be {queue} for a job that may run more than {days} days"
        problems.add_text(path, problem, advice=f'a running time of at most "{run_s_max}s"')
