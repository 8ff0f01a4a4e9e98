"""VMs without a living owner: found, reported, and only then deleted.

    job is live                 its own provision keeps what it wants and deletes the rest (another machine's, zombies)
    job has ended               its own provision deletes every VM: asked for at once
    no job of that label        report ──ORPHAN_GRACE_S──► a later search finds it again ──► deleted by numeric id

The VMs are listed before any job is looked up, and a job is stored before its first VM is asked for: a VM that is seen
without a job has none. A sweeper with a rule less careful than this kills live work (a naive orphan rule, a slow create
taken for dead), so a VM that is still being made or is young is never touched, and its owner is looked for once more
right before the end. Every step may be repeated, or done by two at once, or be the last before a crash.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from shared.core.model.vm import LabelledVm, VmStatus
from shared.core.model.vm_names import job_hash_in, job_label
from shared.flows.record import Deps
from shared.messaging import internal_requests, topics
from shared.ports import Fleet, Orphan, Store

ORPHAN_GRACE_S: Final = 60.0
"""From the report to the deletion: one sweep, so that two looks have to agree before anything is deleted, and whoever
watches the log can see it coming."""
ORPHAN_AGE_MIN_S: Final = 600.0
"""Age before which a VM is nobody's orphan. Longer than any delivery of a provision message runs or waits to be tried
again (10 min, the longest backoff of Pub/Sub), so whoever made it has finished."""
DELETES_MAX: Final = 64
"""In one search, eight at a time for a few seconds each: well within the ack deadline. The rest is the next sweep's."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds; see the constants."""

    grace_s: float = ORPHAN_GRACE_S
    age_min_s: float = ORPHAN_AGE_MIN_S


def handle(
    fleet: Fleet, deps: Deps, patience: Patience, run_all: Callable[[Sequence[Callable[[], None]]], None]
) -> None:
    """`run_all` as in `shared.flows.provision.Machines`."""
    now = deps.clock()
    listed = fleet.list_all()
    ended, ownerless = _sorted_out(listed, deps.store)
    for job_id, count in sorted(ended.items()):
        _log.warning("%s VMs of a job that has ended: its provision deletes them", count, extra={"job_id": job_id})
        deps.bus.publish(topics.PROVISION, internal_requests.encode_provision(job_id), {})
    known = {orphan.instance_id: orphan for orphan in deps.store.orphans()}
    due = []
    for each in ownerless:
        if each.vm.status in (VmStatus.CREATING, VmStatus.STOPPING) or not _is_old(each, now, patience):
            continue
        reported = known.get(each.vm.instance_id)
        if reported is None:
            _report(each, now, deps.store)
        elif now - reported.first_seen_at >= timedelta(seconds=patience.grace_s):
            due.append(each)
    for instance_id in known.keys() - {each.vm.instance_id for each in ownerless}:
        deps.store.forget_orphan(instance_id)
    if len(due) > DELETES_MAX:
        _log.warning("%s orphans are due, %s are deleted now", len(due), DELETES_MAX)
    run_all([partial(_delete, each, fleet, deps.store) for each in due[:DELETES_MAX]])


def _sorted_out(listed: Iterable[LabelledVm], store: Store) -> tuple[dict[str, int], list[LabelledVm]]:
    """How many VMs each ended job still has, and the VMs of no job. The live ones' are not looked up one by one."""
    live = {job_label(job.job_id) for job in store.live_jobs()}
    owners: dict[tuple[str, str], str | None] = {}
    ended: dict[str, int] = defaultdict(int)
    ownerless = []
    for each in listed:
        if each.label in live:
            continue
        name_hash = job_hash_in(each.vm.name)
        if name_hash is None:
            _log.warning("%s carries a job's label under a name that we never give: left alone", each.vm.name)
            continue
        key = (each.label, name_hash)
        if key not in owners:
            owners[key] = _owner(each, store)
        if owner := owners[key]:
            ended[owner] += 1
        else:
            ownerless.append(each)
    return ended, ownerless


def _owner(each: LabelledVm, store: Store) -> str | None:
    """The job that has this VM's name, if it has its label too."""
    job_id = store.job_of_vm(each.vm.name)
    return job_id if job_id is not None and job_label(job_id) == each.label else None


def _is_old(each: LabelledVm, now: datetime, patience: Patience) -> bool:
    created_at = each.vm.created_at
    return created_at is not None and now - created_at >= timedelta(seconds=patience.age_min_s)


def _report(each: LabelledVm, now: datetime, store: Store) -> None:
    vm = each.vm
    store.report_orphan(Orphan(vm.instance_id, vm.name, vm.zone, each.label, now))
    _log.warning(
        "orphan found: VM %s (%s, %s) of job %s, which does not exist", vm.name, vm.instance_id, vm.zone, each.label
    )


def _delete(each: LabelledVm, fleet: Fleet, store: Store) -> None:
    vm = each.vm
    if owner := _owner(each, store):
        _log.warning("VM %s is no orphan: it belongs to %s", vm.name, owner, extra={"job_id": owner})
        store.forget_orphan(vm.instance_id)
        return
    is_gone = fleet.delete(vm)
    _log.warning("orphan %s: VM %s (%s)", "deleted" if is_gone else "is being deleted", vm.name, vm.instance_id)
    if is_gone:
        store.forget_orphan(vm.instance_id)
