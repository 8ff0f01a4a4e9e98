"""Replicas whose agent is gone or hangs with its VM, and set-ups that take long.

The main thread of an agent starts two writes every 30 seconds: the time to a guest attribute of its
VM, the heartbeat; and a point of the series `agent/alive` to Cloud Monitoring. One call shows the
series of all jobs, so `vm_check` sees within a minute that one is missing. It takes a call for each
VM to read heartbeats: only a reconciliation that the sweep (every minute) requested reads them, of
VMs whose series has ended, and of those without a series, at most `HEARTBEATS_READ_MAX`.

    series     heartbeat        the VM is lost when
    fresh      not read         never
    ended      old              both have been silent for more than a minute
    unknown    old              the heartbeat has been missing for `AGENT_TIMEOUT`
    ended      unknown          the series has been missing for `AGENT_TIMEOUT`, and series of other
                                VMs show that Cloud Monitoring works
    any        fresh            never: an outage of Cloud Monitoring must not end a job
    unknown    unknown          never

`flows.provisioning.heartbeats` reads what these functions name, and calls `find_silent_agents`. In
a held round, all members of a synchronous job wait for the agents that have not reported.

A heartbeat is unknown where an organisation policy forbids to read guest attributes. One that is
only not read now, because of a rate limit, is no evidence either way.

docs/decisions/0037-silent-agents.md
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from typing import TypeGuard, TypeVar

from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import is_held, is_ready
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.attention import FULL_RECONCILIATION_MINUTES, is_full_reconciliation
from trainmaster.core.reconcile.startup_timeout import find_startup_timeouts, is_taken_over
from trainmaster.core.reconcile.steps import ReportLoss, Step, Steps
from trainmaster.core.timeouts import (
    AGENT_TIMEOUT,
    ALL_AGENTS_TIMEOUT,
    BOOT_MAX,
    HEARTBEATS_READ_MAX,
    HELD_AGENT_TIMEOUT,
    OLD_HEARTBEAT,
    OLD_POINT,
    SETUP_MAX_S,
    SILENT_JOBS_MAX,
    TAKE_TIMEOUT_S,
)

T = TypeVar("T")
Watched = tuple[tuple[Replica, Vm], ...]
"""Replicas whose agents must write, with their VMs."""
Heartbeats = Mapping[str, datetime | None]
"""The last heartbeat of each VM that was read, by its instance id. None: unknown."""
Points = Mapping[ReplicaId, datetime]
"""The last point of the series of each replica's VM; for a slice, the oldest of its hosts' last
points. Replicas without a known point are absent.
"""


def watched(state: State, vms: tuple[Vm, ...], now: datetime) -> Watched:
    """Return the replicas whose agents must write: those with a running VM.

    Their current incarnation and the current boot of their VM have lasted for `OLD_HEARTBEAT`,
    because what an earlier boot wrote stays readable. `state` holds the whole attempt.
    """
    job = state.job
    if job.state.is_terminal:
        return ()
    vm_by_name = {vm.name: vm for vm in vms if vm.status is VmStatus.RUNNING}
    watched = []
    for replica in state.replicas:
        vm = vm_by_name.get(vm_name(job.set_id, replica.replica_id))
        if vm is not None and _has_run_for(OLD_HEARTBEAT, job, replica, vm, now):
            watched.append((replica, vm))
    return tuple(watched)


def heartbeats_to_read(job: Job, replicas: Watched, points: Points, now: datetime) -> Watched:
    """Return the replicas whose heartbeats this reconciliation reads: those whose series has ended,
    and those without a series after the longer timeout.

    Jobs with TPU nodes are reconciled every minute: without a series, their heartbeats are read
    less often, unless a held round waits for them.
    """
    to_read = [
        (replica, vm)
        for replica, vm in replicas
        if _is_to_read(job, replica, vm, points.get(replica.replica_id), now)
    ]
    return part_to_read(to_read, now, 1 if job.round.is_held else FULL_RECONCILIATION_MINUTES)


def _is_to_read(job: Job, replica: Replica, vm: Vm, point: datetime | None, now: datetime) -> bool:
    """Whether the heartbeat of this VM decides about it. `point`: the last one of its series."""
    if point is not None:
        return _has_ended(point, now)
    if not _has_run_for(_timeout(job, replica), job, replica, vm, now):
        return False
    is_seen_every_minute = vm.is_tpu or job.round.is_held
    is_due = is_full_reconciliation(job, now) or _is_awaited(job, replica)
    return is_due or not is_seen_every_minute


def part_to_read(items: Sequence[T], now: datetime, minutes: int) -> tuple[T, ...]:
    """Return the items that are read in this minute, at most `HEARTBEATS_READ_MAX`.

    The next follow after `minutes`.
    """
    if not items:
        return ()
    parts = ceil(len(items) / HEARTBEATS_READ_MAX)
    return tuple(items[int(now.timestamp()) // (60 * minutes) % parts :: parts])


def jobs_to_read(missing: Mapping[str, int], now: datetime) -> tuple[str, ...]:
    """Return the silent jobs whose heartbeats are read in this minute; the others follow.

    `missing`: the number of each job's VMs without a fresh series, which is the number of reads.
    All jobs of a minute together are read at most `HEARTBEATS_READ_MAX` times, but for a single
    larger job, whose reconciliation has that limit of its own.
    """
    if not missing:
        return ()
    parts: list[list[str]] = [[]]
    reads = 0
    for job_id, count in sorted(missing.items()):
        has_room = reads + count <= HEARTBEATS_READ_MAX and len(parts[-1]) < SILENT_JOBS_MAX
        if parts[-1] and not has_room:
            parts.append([])
            reads = 0
        parts[-1].append(job_id)
        reads += count
    return tuple(parts[int(now.timestamp()) // 60 % len(parts)])


def suspendable_timeouts(
    steps: Steps, state: State, vms: tuple[Vm, ...], now: datetime
) -> dict[str, Vm]:
    """Return the VMs, by name, whose startup timeouts are suspended while their agents write
    heartbeats: their set-up takes long, but not longer than `SETUP_MAX_S`.
    """
    timeouts = {step.name: step.vm for step in steps.steps if _is_timeout(step) and step.vm}
    overdue = (
        {loss.name for loss in find_startup_timeouts(state, vms, now, SETUP_MAX_S)}
        if timeouts
        else ()
    )
    return {name: vm for name, vm in timeouts.items() if name not in overdue}


def without_timeouts(steps: Steps, names: Collection[str]) -> Steps:
    """Return the steps without the startup timeouts of these VMs."""
    return replace(
        steps,
        steps=tuple(step for step in steps.steps if not (_is_timeout(step) and step.name in names)),
    )


def is_silent(
    last_sign: datetime | None, now: datetime, patience: timedelta = AGENT_TIMEOUT
) -> bool:
    """Whether no sign of the agent is known, or the last one is old."""
    return last_sign is None or now - last_sign >= patience


def patience_with(job: Job, replica: Replica) -> timedelta:
    """Return the age of the heartbeat at which a VM whose startup timeout is over is given up."""
    return timedelta(seconds=TAKE_TIMEOUT_S) if is_taken_over(job, replica) else AGENT_TIMEOUT


def _is_timeout(step: Step) -> TypeGuard[ReportLoss]:
    return isinstance(step, ReportLoss) and step.cause is LossCause.STARTUP_TIMEOUT


def find_silent_agents(
    job: Job,
    replicas: Watched,
    read: Watched,
    points: Points,
    heartbeats: Heartbeats,
    now: datetime,
    *,
    others_write: bool = False,
) -> tuple[ReportLoss, ...]:
    """Return the losses to report, each at the time of the last sign: it may explain exits of peers
    since then.

    `read`: the part of `replicas` whose heartbeats were to be read. `others_write`: whether some
    VM of any job has a fresh series, so that a series that has ended is evidence by itself.

    If several VMs were read and all of them are silent, while no other VM has a fresh series, wrong
    readings are more likely than losses. Then a VM is lost only after `AGENT_TIMEOUT` if its series
    has ended, too; after `ALL_AGENTS_TIMEOUT` if it has no series; and after `HELD_AGENT_TIMEOUT`
    if a held round waits for it.
    """
    silent: list[ReportLoss] = []
    for replica, vm in read:
        point = points.get(replica.replica_id)
        heartbeat = heartbeats.get(vm.instance_id)
        is_shown_by_series = others_write and _has_ended_unread(
            replica, vm, points, heartbeats, now
        )
        if is_shown_by_series or _is_lost(job, replica, vm, point, heartbeat, now):
            name = vm_name(job.set_id, replica.replica_id)
            last_sign = _last_sign(replica, heartbeat, point)
            silent.append(ReportLoss(replica, name, vm, LossCause.AGENT_SILENT, last_sign))
    known = [points[replica.replica_id] for replica, _ in replicas if replica.replica_id in points]
    is_doubtful = len(silent) == len(read) > 1 and all(_has_ended(point, now) for point in known)
    if not is_doubtful:
        return tuple(silent)
    return tuple(loss for loss in silent if _is_beyond_doubt(job, loss, points, now))


def is_undecided(read: Watched, points: Points, heartbeats: Heartbeats, now: datetime) -> bool:
    """Whether a series ended long enough ago to decide alone, if other VMs write theirs."""
    return any(_has_ended_unread(replica, vm, points, heartbeats, now) for replica, vm in read)


def _has_ended_unread(
    replica: Replica, vm: Vm, points: Points, heartbeats: Heartbeats, now: datetime
) -> bool:
    """Whether the VM's heartbeat was read and is unknown, and its series ended `AGENT_TIMEOUT` ago.

    Slices are left out: any program of the project may write a series with a host's labels, and the
    oldest one of a slice counts.
    """
    point = points.get(replica.replica_id)
    is_unknown = vm.instance_id in heartbeats and heartbeats[vm.instance_id] is None
    if point is None or vm.is_tpu or not is_unknown:
        return False
    return now - point >= AGENT_TIMEOUT and _has_booted(vm, point, now)


def _is_lost(
    job: Job,
    replica: Replica,
    vm: Vm,
    point: datetime | None,
    heartbeat: datetime | None,
    now: datetime,
) -> bool:
    """Whether what is known about the agent shows that it is gone."""
    if heartbeat is None:
        return False
    silence = now - heartbeat
    if point is None or not _has_booted(vm, point, now):
        return silence >= _timeout(job, replica)
    return silence >= OLD_HEARTBEAT and _has_ended(point, now)


def _has_ended(point: datetime, now: datetime) -> bool:
    return now - point >= OLD_POINT


def _has_booted(vm: Vm, point: datetime, now: datetime) -> bool:
    """Whether the agent has written since the VM's start, or should have.

    Compute Engine starts VMs again after an error of their host.
    """
    return vm.started_at is None or point >= vm.started_at or now - vm.started_at >= BOOT_MAX


def _is_awaited(job: Job, replica: Replica) -> bool:
    """Whether a held round waits for the agent's report."""
    return is_held(job, replica.replica_id) and not is_ready(job, replica)


def _timeout(job: Job, replica: Replica) -> timedelta:
    """How long a heartbeat must be missing if the VM has no series."""
    return HELD_AGENT_TIMEOUT if _is_awaited(job, replica) else AGENT_TIMEOUT


def _is_beyond_doubt(job: Job, loss: ReportLoss, points: Points, now: datetime) -> bool:
    """Whether the agent has been silent for so long that wrong readings do not explain it."""
    replica = loss.replica
    has_series = replica.replica_id in points
    patience = AGENT_TIMEOUT if has_series else ALL_AGENTS_TIMEOUT
    if _is_awaited(job, replica):
        patience = HELD_AGENT_TIMEOUT
    return is_silent(loss.at, now, patience)


def _has_run_for(duration: timedelta, job: Job, replica: Replica, vm: Vm, now: datetime) -> bool:
    """Whether the program, or the wait for the round, has lasted for `duration` on this VM."""
    is_on_other_vm = replica.instance_id != vm.instance_id and not vm.is_tpu
    if replica.state is ReplicaState.COMPLETED or is_on_other_vm:
        return False
    ordered_at = job.round.ordered_at if _is_awaited(job, replica) else None
    since = [
        moment for moment in (replica.ready_at, vm.started_at, ordered_at) if moment is not None
    ]
    return bool(since) and now - max(since) >= duration


def _last_sign(replica: Replica, *signs: datetime | None) -> datetime:
    """Return when the agent was last known to work: at its last heartbeat or point, or later, when
    it reported the replica ready.
    """
    return max(sign for sign in (*signs, replica.ready_at) if sign is not None)
