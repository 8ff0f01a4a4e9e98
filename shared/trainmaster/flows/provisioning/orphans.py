"""Orphans: VMs with a job's label, but without a live job.

They are found, reported, and only then deleted.

    the job is live             its own provisioning keeps the desired VMs and deletes all others
    the job has ended           its own provisioning deletes all VMs: it is requested at once
    it keeps its machines       the sweep requests its provisioning: the entry of its end is pending
    the job's set has another   that job's provisioning decides, live or ended
    holder
    there is no such job        report ──ORPHAN_GRACE_S──► the next search finds the VM again
                                ──► delete by numeric id

The search must never delete a live job's VM. It lists the VMs before it looks up any job, and a job
is always stored before its first VM is requested: a listed VM without a job has none. VMs that are
being created or are younger than ORPHAN_AGE_MIN_S are never touched, and the owner is looked up
once more before the deletion. Every step may be repeated, run concurrently, or be the last one
before a crash.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from trainmaster.core.model.vm import LabelledVm, VmStatus
from trainmaster.core.model.vm_names import job_hash_in, job_label
from trainmaster.flows.commit.record import Deps
from trainmaster.messaging import internal_requests, topics
from trainmaster.ports import Fleet, Incidents, JobQueries, Orphan, Store, VmOwner

ORPHAN_GRACE_S: Final = 60.0
"""Time from the report to the deletion: one sweep interval.

Two searches must agree before a VM is deleted, and operators see the report in the log first.
"""
ORPHAN_AGE_MIN_S: Final = 600.0
"""Age below which a VM is not considered an orphan.

No delivery of a provision message runs or waits for its retry longer than 10 min (the longest
backoff of Pub/Sub), so the request that created the VM has finished.
"""
DELETES_MAX: Final = 64
"""Deletions in one search.

Eight at a time for a few seconds each stay well within the ack deadline; the next search deletes
the rest.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OrphanTimes:
    """How long orphans are left alone. See the constants for the reasons."""

    grace_s: float = ORPHAN_GRACE_S
    age_min_s: float = ORPHAN_AGE_MIN_S


def handle(
    listed: Iterable[LabelledVm],
    active_labels: Collection[str],
    fleet: Fleet,
    deps: Deps,
    times: OrphanTimes,
    run_all: Callable[[Sequence[Callable[[], None]]], None],
) -> None:
    """Search once among the listed VMs.

    `active_labels` are those of the live jobs that do not wait for their admission. They were read
    after the VMs were listed.

    `run_all` is explained at `trainmaster.flows.provisioning.fleet_deps.FleetDeps`.
    """
    now = deps.clock()
    vms_of_ended_jobs, ownerless = _find_ownerless(listed, active_labels, deps.store)
    for job_id, count in sorted(vms_of_ended_jobs.items()):
        _log.info(
            "%s VMs of a job that needs none: requesting their deletion",
            count,
            extra={"job_id": job_id},
        )
        request = internal_requests.ProvisionRequest(job_id)
        deps.bus.publish(
            topics.PROVISION, internal_requests.encode_provision(request), attributes={}
        )
    reported = {orphan.instance_id: orphan for orphan in deps.store.orphans()}
    due = []
    for orphan_vm in ownerless:
        is_changing = orphan_vm.vm.status in (VmStatus.CREATING, VmStatus.STOPPING)
        if is_changing or not _is_old(orphan_vm, now, times):
            continue
        report = reported.get(orphan_vm.vm.instance_id)
        if report is None:
            _report(orphan_vm, now, deps.store)
        elif now - report.first_seen_at >= timedelta(seconds=times.grace_s):
            due.append(orphan_vm)
    for instance_id in reported.keys() - {orphan_vm.vm.instance_id for orphan_vm in ownerless}:
        deps.store.forget_orphan(instance_id)
    if len(due) > DELETES_MAX:
        _log.warning(
            "%s orphans are due for deletion; deleting %s of them now", len(due), DELETES_MAX
        )
    run_all([partial(_delete, orphan_vm, fleet, deps.store) for orphan_vm in due[:DELETES_MAX]])


def _find_ownerless(
    listed: Iterable[LabelledVm], active_labels: Collection[str], store: JobQueries
) -> tuple[Counter[str], list[LabelledVm]]:
    """Return how many VMs each ended job still has that are not kept, and the VMs without a job.

    VMs of live jobs are recognized by their label, without a lookup of their own.
    """
    owners: dict[tuple[str, str], VmOwner | None] = {}
    vms_of_ended_jobs: Counter[str] = Counter()
    ownerless = []
    for labelled_vm in listed:
        if labelled_vm.label in active_labels:
            continue
        name_hash = job_hash_in(labelled_vm.vm.name)
        if name_hash is None:
            _log.warning(
                "VM %s has a job's label, but not the name of a job's VM: not touched",
                labelled_vm.vm.name,
            )
            continue
        key = (labelled_vm.label, name_hash)
        if key not in owners:
            owners[key] = _find_owner(labelled_vm, store)
        owner = owners[key]
        if owner is None:
            ownerless.append(labelled_vm)
        elif not owner.is_kept:
            vms_of_ended_jobs[owner.job_id] += 1
    return vms_of_ended_jobs, ownerless


def _find_owner(labelled_vm: LabelledVm, store: JobQueries) -> VmOwner | None:
    """Return the job that has both this VM's name and its label: of a machine set, its holder."""
    owner = store.owner_of_vm(labelled_vm.vm.name)
    return owner if owner and job_label(owner.set_id) == labelled_vm.label else None


def _is_old(labelled_vm: LabelledVm, now: datetime, times: OrphanTimes) -> bool:
    created_at = labelled_vm.vm.created_at
    return created_at is not None and now - created_at >= timedelta(seconds=times.age_min_s)


def _report(labelled_vm: LabelledVm, now: datetime, store: Incidents) -> None:
    vm = labelled_vm.vm
    store.report_orphan(Orphan(vm.instance_id, vm.name, vm.zone, labelled_vm.label, now))
    _log.warning(
        "orphan found: VM %s (%s, %s) of job %s, which does not exist",
        vm.name,
        vm.instance_id,
        vm.zone,
        labelled_vm.label,
        extra={"action": "orphan_found"},  # the alert in infra/monitoring.tf looks for it
    )


def _delete(labelled_vm: LabelledVm, fleet: Fleet, store: Store) -> None:
    vm = labelled_vm.vm
    if owner := _find_owner(labelled_vm, store):
        _log.warning(
            "VM %s is not an orphan: it belongs to %s",
            vm.name,
            owner.job_id,
            extra={"job_id": owner.job_id},
        )
        store.forget_orphan(vm.instance_id)
        return
    is_gone = fleet.delete(vm)
    _log.warning(
        "orphan %s: VM %s (%s)",
        "deleted" if is_gone else "is being deleted",
        vm.name,
        vm.instance_id,
    )
    if is_gone:
        store.forget_orphan(vm.instance_id)
