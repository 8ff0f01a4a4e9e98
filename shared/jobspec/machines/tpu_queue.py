"""Whether a TPU slice is waited for in Cloud TPU's own queue, and what such a job can be.

It waits for one slice and nothing else: what stands beside it, or comes before the last of several, would be paid for
meanwhile. docs/decisions/0021-a-slice-may-be-waited-for.md
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.core.model.job import FLEX_START_MAX_S, TaskGroup, TpuQueue
from shared.jobspec.fields.extension_fields import Extras
from shared.jobspec.formats.extension import Extension
from shared.jobspec.reading.document_kinds import EXTENSION
from shared.jobspec.reading.problems import Findings, Loc
from shared.jobspec.resolve.resolved_spec import Meaning


def queue_of(
    extension: Extension, extras: Extras, meaning: Meaning, groups: Sequence[TaskGroup], found: Findings
) -> TpuQueue | None:
    asked, flexible_at = extension.queue, meaning.flex_start_at
    at: Loc = flexible_at or (EXTENSION, "queue")
    if flexible_at and asked not in (None, "FLEX_START"):
        found.add((EXTENSION, "queue"), f"contradicts {found.path(flexible_at)}, which is FLEX_START", "FLEX_START")
        return None
    queue = TpuQueue.FLEX_START if flexible_at else TpuQueue[asked] if asked not in (None, "NONE") else None
    if queue is None:
        return None
    _check_it_is_one_slice(queue, at, meaning, groups, found)
    if queue is TpuQueue.FLEX_START:
        _check_flexible(at, extras, meaning, found)
    return queue


def _check_it_is_one_slice(
    queue: TpuQueue, at: Loc, meaning: Meaning, groups: Sequence[TaskGroup], found: Findings
) -> None:
    if len(groups) < len(meaning.roles) or not groups:
        return  # what is wrong with them is told already
    if not any(group.tpu for group in groups):
        found.add_text(at, f"asks for {queue.name} of VMs: only TPU slices are waited for in a queue", _otherwise(at))
    elif (replicas := sum(group.count for group in groups)) > 1:
        problem = f"waits for one TPU slice, and these are {replicas} replicas: the first would be paid for meanwhile"
        found.add_text(at, problem, _otherwise(at))


def _check_flexible(at: Loc, extras: Extras, meaning: Meaning, found: Findings) -> None:
    if (extras.spot or meaning.spot or "NONE") != "NONE":
        found.add_text(at, "FLEX_START is no Spot capacity", "leave out spot, or use the STANDARD queue")
    if extras.reservation:
        found.add_text(at, "FLEX_START is no reserved capacity", "leave out the reservation, or use the STANDARD queue")
    if meaning.max_running_s > FLEX_START_MAX_S:
        days = FLEX_START_MAX_S // 86400
        found.add_text(
            at, f"FLEX_START runs for at most {days} days", f'a running time of at most "{FLEX_START_MAX_S}s"'
        )


def _otherwise(at: Loc) -> str:
    return "queue: none" if at[0] == EXTENSION else 'strategy: "STANDARD"'
