"""Kept machines in `provision`: jobs take them, or they are released, which deletes them.

    job with keepMachines leaves the queue ──► kept sets that fit ──► VMs that run, with a fresh
                                               heartbeat ──► ProvisioningStarted names them
    deadline passed ──► MachinesReleased ──► the holder's VMs are deleted
    VMs run no more ──► MachinesLost ──► the others are kept; a set without others is released
    limit exceeded, stockout, quota used up ──► the oldest kept set is released

A job with `keepMachines` leaves its VMs running when it ends: they are a *kept set*, and the job is
its *holder* until another one takes the set. The *tenure* counts the holders of a set.

Sets are read before their VMs are listed, and each commit has the set's update time as
precondition: of two jobs that take one set, or a take and a release, one wins.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from trainmaster.core.events import MachinesLost, MachinesReleased, ProvisioningStarted
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import KeptVm, MachineSet, ReleaseCause, Taken
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.reconcile.kept import is_later
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.rules.admission_queue import (
    USD_PER_HOUR,
    Limits,
    needs_of_groups,
    used_resources,
)
from trainmaster.core.rules.kept_machines import candidate_in
from trainmaster.core.timeouts import OLD_HEARTBEAT
from trainmaster.errors import ConflictError, TemporaryError
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.flows.provisioning.outlook import gather_outlook
from trainmaster.ports import AdmissionToken, LoadedSet, reached

TRIES: Final = 3
"""How often other kept machines are searched after another job has taken the ones that fit."""

REASONS_SHOWN: Final = 3
"""Kept sets of which a sentence says why they do not fit, at most."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """The kept machines that a job takes; or why it takes none."""

    loaded: LoadedSet | None = None
    taken: Taken | None = None
    misfit: str | None = None
    """None: the job takes machines, or has no `keepMachines`."""


def start(
    job: Job,
    fleet_deps: FleetDeps,
    deps: Deps,
    admission_token: AdmissionToken | None = None,
    *,
    is_admission: bool = False,
) -> bool:
    """Let the job leave the admission queue, with kept machines if some fit.

    Return whether this call recorded that, and not an earlier one. `admission_token`: the commit
    fails if another job was admitted since the token was taken; the call then raises ConflictError.
    It also does so if other jobs have taken the machines in each of `TRIES` tries.
    """
    for _ in range(TRIES):
        choice = choose(job, fleet_deps, deps)
        event = ProvisioningStarted(
            job.job_id,
            deps.clock(),
            is_admission=is_admission,
            outlook=() if choice.taken else gather_outlook(job, deps),
            taken=choice.taken,
            misfit=choice.misfit,
        )
        try:
            return record(event, deps, admission_token, taken=choice.loaded).is_new
        except ConflictError:
            # With a token, the caller repeats its whole pass: the token may be what is outdated.
            may_be_taken = choice.loaded is not None and admission_token is None
            if not may_be_taken:
                raise
    raise ConflictError(f"{job.job_id}: other jobs have taken the kept machines in {TRIES} tries")


def choose(job: Job, fleet_deps: FleetDeps, deps: Deps) -> Choice:
    """Return the kept machines that the job takes: those of which it can use the most."""
    if job.machines is None:
        return Choice()
    best: Choice | None = None
    reasons: list[str] = []
    for loaded in deps.store.kept_machines():
        machines = loaded.machine_set
        candidate = candidate_in(machines, job, deps.clock())
        if isinstance(candidate, str):
            reasons.append(f"{machines.holder}: {candidate}")
            continue
        vms = _usable(job, machines, fleet_deps, deps.clock())
        if not vms:
            reasons.append(f"{machines.holder}: none of its VMs runs with a fresh heartbeat")
        elif best is None or best.taken is None or len(vms) > len(best.taken.vms):
            best = Choice(loaded, Taken(machines, candidate, vms))
    if best is not None:
        return best
    if not reasons:
        return Choice(misfit="No machines are kept.")
    return Choice(misfit=f"No kept machines fit. Of {'; of '.join(reasons[:REASONS_SHOWN])}.")


def _usable(
    job: Job, machines: MachineSet, fleet_deps: FleetDeps, now: datetime
) -> tuple[KeptVm, ...]:
    """Return the VMs that run, with a fresh heartbeat, and for which the job has a replica."""
    if now >= machines.until:
        return ()
    fleet = fleet_deps.fleet
    # VMs in a zone that Google cannot reach now are left out.
    listed = reached(lambda: fleet.list_vms(machines.set_id, zones=(machines.zone,))).listed
    kept = {vm.instance_id: vm for vm in machines.vms}
    replica_ids = set(job.plan.replica_ids)
    running = [
        vm
        for vm in listed
        if vm.status is VmStatus.RUNNING
        and vm.instance_id in kept
        and vm.replica_id in replica_ids
        and not is_later(machines, vm)  # another holder has taken it since
    ]
    fresh: dict[str, bool] = {}

    def look(vm: Vm) -> None:
        try:
            heartbeat = fleet.last_heartbeat(vm)
        except TemporaryError as error:
            _log.info("the heartbeat of %s is not read now: %s", vm.name, error)
        else:
            fresh[vm.instance_id] = heartbeat is not None and now - heartbeat < OLD_HEARTBEAT

    fleet_deps.run_all([partial(look, vm) for vm in running])
    return tuple(kept[vm.instance_id] for vm in running if fresh.get(vm.instance_id))


def release(machines: MachineSet, cause: ReleaseCause, deps: Deps, by: str = "") -> None:
    """Release the machines, unless somebody has taken or released them."""
    event = MachinesReleased(machines.holder, machines.tenure, cause, deps.clock(), by)
    record(event, deps)


def drop_lost(machines: MachineSet, lost: tuple[str, ...], deps: Deps) -> None:
    """Keep these VMs no longer. `machines`: the set as it was read."""
    record(MachinesLost(machines.holder, lost, machines.version, deps.clock()), deps)


def release_for_limits(live_jobs: Iterable[Job], limits: Limits, deps: Deps) -> None:
    """Release the oldest kept machines while they and all admitted jobs exceed a limit together.

    Kept machines delay no job: jobs are admitted as if there were none.
    """
    kept = [loaded.machine_set for loaded in deps.store.kept_machines()]
    total = used_resources(live_jobs) + sum(map(_needs, kept), Counter())
    for machines in kept:
        if all(total[resource] <= limit for resource, limit in limits.items()):
            return
        release(machines, ReleaseCause.CAPACITY, deps)
        total -= _needs(machines)


def _needs(machines: MachineSet) -> Counter[str]:
    """Return what the machines use of each limited resource."""
    return needs_of_groups(machines.groups) + Counter({USD_PER_HOUR: machines.usd_per_hour})


def release_for_capacity(create: Create, job: Job, deps: Deps, *, is_quota: bool) -> None:
    """Release the oldest kept machines that may be what a refused request lacks: with the same
    machine type in the zone, or in the region if a quota is used up.
    """
    region = create.zone.rpartition("-")[0]
    for loaded in deps.store.kept_machines():
        machines = loaded.machine_set
        is_near = machines.zone.startswith(region) if is_quota else machines.zone == create.zone
        is_alike = is_quota or any(
            group.machine_type == create.group.machine_type for group in machines.groups
        )
        if is_near and is_alike and machines.set_id != job.set_id:
            release(machines, ReleaseCause.CAPACITY, deps, job.job_id)
            return
