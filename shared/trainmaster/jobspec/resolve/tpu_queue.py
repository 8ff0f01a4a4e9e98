"""Whether a TPU slice is requested as a queued resource of Cloud TPU, and which jobs may do that.

Only a job that is a single slice may: any other machine of the job would cost money while the slice
waits in the queue. docs/decisions/0021-tpu-queued-resources.md
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.model.plan import FLEX_START_MAX_S, TaskGroup, TpuQueue
from trainmaster.jobspec.formats.extension import Extension, QueueMode
from trainmaster.jobspec.formats.placement import SpotUse
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.document_kinds import EXTENSION
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec


def resolve_queue(
    extension: Extension,
    spec: ResolvedSpec,
    groups: Sequence[TaskGroup],
    problems: Problems,
) -> TpuQueue | None:
    """Return how the job's TPU slice is queued; None: it is not, or that is a problem."""
    requested = extension.queue
    strategy_path = spec.flex_start_path
    path: FieldPath = strategy_path or (EXTENSION, "queue")
    if strategy_path and requested not in (None, QueueMode.FLEX_START):
        problem = f"contradicts {problems.spelled_path(strategy_path)}, which is FLEX_START"
        problems.add((EXTENSION, "queue"), problem, "FLEX_START")
        return None
    if strategy_path or requested is QueueMode.FLEX_START:
        _check_single_slice(TpuQueue.FLEX_START, path, spec, groups, problems)
        _check_flex_start(path, extension, spec, problems)
        return TpuQueue.FLEX_START
    if requested is QueueMode.STANDARD:
        _check_single_slice(TpuQueue.STANDARD, path, spec, groups, problems)
        return TpuQueue.STANDARD
    return None


def _check_single_slice(
    queue: TpuQueue,
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
        if queue is TpuQueue.FLEX_START:
            offered = (
                "Compute Engine offers flex-start for VMs that are created one by one, or by a"
                " managed instance group, and not for those of a job, which are created together"
                " under fixed names"
            )
        problem = (
            f"cannot be {queue.name} for a job of VMs: {offered}. VMs are requested in one zone"
            " after the other until there is capacity, for as long as the job may wait; Spot VMs"
            " (trainmaster.spot) or a reservation (trainmaster.reservation), also a future one in"
            " calendar mode, get GPUs sooner"
        )
        problems.add_text(path, problem, example)
    elif replicas > 1:
        problem = (
            f"cannot be {queue.name} for a job of {replicas} replicas: only a job of one TPU slice"
            " can wait in a queue"
        )
        problems.add_text(path, problem, example)


def _check_flex_start(
    path: FieldPath, extension: Extension, spec: ResolvedSpec, problems: Problems
) -> None:
    if (extension.spot.use or spec.spot) not in (None, SpotUse.NONE):
        problems.add_text(
            path, "cannot combine FLEX_START with Spot", "leave out spot, or use the queue STANDARD"
        )
    if extension.reservation:
        example = "leave out the reservation, or use the queue STANDARD"
        problems.add_text(path, "cannot combine FLEX_START with a reservation", example)
    if spec.max_running_s > FLEX_START_MAX_S:
        days = FLEX_START_MAX_S // 86400
        example = f'a running time of at most "{FLEX_START_MAX_S}s"'
        problems.add_text(
            path, f"cannot be FLEX_START for a job that may run more than {days} days", example
        )
