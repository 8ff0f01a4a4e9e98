"""Lost work, estimated for each loss from its time and the times of the checkpoints before it.

An incarnation (one execution of a replica's program) that did not complete, and was followed by
another one, lost the work since its last checkpoint. Trainmaster does not see checkpoints being
saved. It sees when objects in the job's directory were created, which is evidence but not proof: a
program may save elsewhere, overwrite a checkpoint, or delete an old one. Each loss therefore has
two bounds.

    at most    loss - newest checkpoint that is still there, written in this incarnation; else the
               whole incarnation
    at least   loss - newest object of any kind; nothing if a newer checkpoint may have been
               replaced or deleted since

Programs that keep some checkpoints delete the oldest ones first, so the newest one before a loss is
still there, unless all checkpoints of that time were deleted. An object without a number in its
name, such as `last.ckpt`, is replaced by the next one. Where a library marks complete saves, only
the markers are checkpoints.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.phases import Phase, Span

_NO_CHECKPOINT: Final = re.compile(
    r"(.*/)?([^/]*\.tfevents\.[^/]*|[^/]*\.(log|txt|csv|ya?ml|md|html|png|py)|)", re.IGNORECASE
)
"""Names of event files, logs, reports and folders: a program writes them without saving its state.
"""
_REPLACED: Final = re.compile(r"(?!(.*/)?checkpoint$)[^0-9]*?(\.[^/]*)?")
"""Names without a number before the extension, except for TensorFlow's `checkpoint`, which only
names the others.
"""


_MARKER: Final = re.compile(
    r"(?P<folder>(?:.*/)?)[^/]+/(?:commit_success\.txt|\.metadata|trainer_state\.json)"
    r"|(?P<prefix>(?P<index_folder>(?:.*/)?)[^/]+)\.index"
)
"""The last object of a save, and the folder of all saves.

Source: Orbax on Cloud Storage, torch.distributed.checkpoint, Trainer of transformers,
tf.train.Checkpoint.
"""
_COMPLETED: Final = (Phase.COMPLETED, Phase.KEPT)
"""Phases of a replica that has done its work: its VM is released, or kept for another job."""
_UNFINISHED: Final = "-unfinished"
"""End of the object beside the folder of a save that is not complete.

Source: NeMo's checkpoint callback.
"""


@dataclass(frozen=True, slots=True)
class WrittenObjects:
    """When the objects in the job's directory were created, in order."""

    checkpoints: tuple[datetime, ...] = ()
    """Objects that may belong to a checkpoint."""
    others: tuple[datetime, ...] = ()
    """Event files, logs and the like."""
    replaced_at: datetime | None = None
    """When the newest checkpoint without a number in its name was written: it may have replaced an
    earlier one.
    """
    is_complete: bool = True
    """Whether all objects were listed."""

    def newest_checkpoint(self, since: datetime, until: datetime) -> datetime | None:
        return _newest(self.checkpoints, since, until)

    def newest(self, since: datetime, until: datetime) -> datetime | None:
        newest = (_newest(times, since, until) for times in (self.checkpoints, self.others))
        return max((at for at in newest if at is not None), default=None)

    def is_intact(self, since: datetime, until: datetime) -> bool:
        """Whether nothing that was written in this time can have been replaced or deleted since.

        The oldest checkpoints are deleted first, when a program writes later. So if a checkpoint of
        this time is still there, nothing newer of this time was deleted.
        """
        if not self.is_complete or not (self.checkpoints or self.others):
            return False
        if self.replaced_at is not None and self.replaced_at > until:
            return False
        wrote_later = any(times and times[-1] > until for times in (self.checkpoints, self.others))
        return not wrote_later or self.newest_checkpoint(since, until) is not None


@dataclass(frozen=True, slots=True)
class Loss:
    """The end of an incarnation whose replica had to start again."""

    replica_id: ReplicaId
    attempt: int
    incarnation: int
    machines: int
    """Machines of the replica, which all lost the work."""
    start: datetime
    """When the incarnation's program started."""
    at: datetime
    """When its end was judged."""
    resumed_at: datetime | None
    """When the replica's next program started; None: none did until now."""


@dataclass(frozen=True, slots=True)
class LostWork:
    """Machine-seconds of work that was lost: an estimate with two bounds."""

    at_least_s: float = 0.0
    at_most_s: float = 0.0

    def __add__(self, other: LostWork) -> LostWork:
        return LostWork(self.at_least_s + other.at_least_s, self.at_most_s + other.at_most_s)


def checkpoints_of(names: Iterable[str]) -> set[str]:
    """Return the objects that may belong to a checkpoint. Where a library marks complete saves,
    return only the markers.
    """
    names = set(names)
    # TensorFlow's PREFIX.index marks a save only beside its shards, PREFIX.data-00000-of-00001.
    sharded = {name.partition(".data-")[0] for name in names if ".data-" in name}
    markers: dict[str, str] = {}  # marker → folder of all saves
    for name in names:
        match = _MARKER.fullmatch(name)
        if match is None:
            continue
        is_tensorflow_index = match["prefix"] is not None
        if not is_tensorflow_index:
            markers[name] = match["folder"]
        elif match["prefix"] in sharded:
            markers[name] = match["index_folder"]
    unfinished = tuple(
        f"{name.removesuffix(_UNFINISHED)}/" for name in names if name.endswith(_UNFINISHED)
    )
    folders_with_markers = tuple(set(markers.values()))

    def may_belong_to_checkpoint(name: str) -> bool:
        if name.startswith(unfinished) or name.endswith(_UNFINISHED):
            return False
        if name in markers:
            return True
        return not name.startswith(folders_with_markers) and not _NO_CHECKPOINT.fullmatch(name)

    return {name for name in names if may_belong_to_checkpoint(name)}


def written_objects(
    objects: Iterable[tuple[str, datetime]], *, is_complete: bool = True
) -> WrittenObjects:
    """Return the evidence of these objects, in any order: name below the job's directory, and time
    of creation.
    """
    checkpoints: list[datetime] = []
    others: list[datetime] = []
    replaced: list[datetime] = []
    listed = list(objects)
    saved = checkpoints_of(name for name, _ in listed)
    for name, created_at in listed:
        (checkpoints if name in saved else others).append(created_at)
        if name in saved and _REPLACED.fullmatch(name):
            replaced.append(created_at)
    return WrittenObjects(
        tuple(sorted(checkpoints)), tuple(sorted(others)), max(replaced, default=None), is_complete
    )


def losses(plan: Plan, spans: Iterable[Span]) -> tuple[Loss, ...]:
    """Return the losses of a job in the order of time.

    `spans`: all spans, as `replica_spans` sorts them.
    """
    by_replica: dict[ReplicaId, list[Span]] = {}
    for span in spans:
        by_replica.setdefault(span.replica_id, []).append(span)
    job_losses = []
    for own in by_replica.values():
        for index in range(1, len(own)):
            loss = _loss(own, index, own[index - 1].machines(plan))
            if loss is not None:
                job_losses.append(loss)
    return tuple(sorted(job_losses, key=lambda loss: loss.at))


def _loss(own: Sequence[Span], index: int, machines: int) -> Loss | None:
    """Return the loss between a span of a replica and the one before it; None if there is none."""
    last = own[index - 1]
    span = own[index]
    if last.phase is not Phase.RUNNING or span.phase in _COMPLETED:
        return None
    resumed_at = next((later.start for later in own[index:] if later.phase is Phase.RUNNING), None)
    at = last.end or span.start
    return Loss(
        last.replica_id, last.attempt, last.incarnation, machines, last.start, at, resumed_at
    )


def lost_work(loss: Loss, written: WrittenObjects | None, now: datetime) -> LostWork:
    """Return the work that this loss cost. `written` is None if nothing is known about checkpoints.

    A program that saves a checkpoint because its VM is about to be taken away does so after the
    loss was judged. Objects that it wrote before the next incarnation started therefore count, too.
    """
    whole_s = max((loss.at - loss.start).total_seconds(), 0.0)
    if written is None:
        return LostWork(at_least_s=0.0, at_most_s=loss.machines * whole_s)
    until = loss.resumed_at or now
    checkpoint = written.newest_checkpoint(loss.start, until)
    newest = written.newest(loss.start, until)
    at_most_s = whole_s if checkpoint is None else _seconds(checkpoint, loss.at)
    at_least_s = whole_s if newest is None else _seconds(newest, loss.at)
    if not written.is_intact(loss.start, until):
        at_least_s = 0.0
    return LostWork(loss.machines * min(at_least_s, at_most_s), loss.machines * at_most_s)


def lost_work_by_attempt(
    job_losses: Iterable[Loss], written: WrittenObjects | None, now: datetime
) -> Mapping[int, LostWork]:
    """Return the lost work of each attempt that has losses."""
    by_attempt: dict[int, LostWork] = {}
    for loss in job_losses:
        by_attempt[loss.attempt] = by_attempt.get(loss.attempt, LostWork()) + lost_work(
            loss, written, now
        )
    return by_attempt


def _seconds(since: datetime, until: datetime) -> float:
    return max((until - since).total_seconds(), 0.0)


def _newest(times: tuple[datetime, ...], since: datetime, until: datetime) -> datetime | None:
    """Return the newest of these times in [since, until]; `times` are in order."""
    index = bisect_right(times, until)
    return times[index - 1] if index > bisect_left(times, since) else None
