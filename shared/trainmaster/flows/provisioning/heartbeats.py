"""Reading the two signs that an agent works, within a reconciliation that the sweep requests every
minute.

    heartbeat    the time that the agent has written to a guest attribute of its VM: one call for
                 each VM
    point        its last entry in a series of Cloud Monitoring: one call for the whole job

`core.reconcile.heartbeat` says which heartbeats are read, and which agents are silent.
"""

from __future__ import annotations

import logging
from datetime import datetime
from functools import partial

from trainmaster.core.model.job import State
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.heartbeat import (
    find_silent_agents,
    heartbeats_to_read,
    is_silent,
    is_undecided,
    part_to_read,
    patience_with,
    suspendable_timeouts,
    watched,
    without_timeouts,
)
from trainmaster.core.reconcile.steps import ReportLoss, Steps
from trainmaster.errors import TemporaryError
from trainmaster.flows.provisioning.alive_series import count_alive, last_points
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.ports import Fleet

_log = logging.getLogger(__name__)


def find_silent(
    state: State, vms: tuple[Vm, ...], fleet_deps: FleetDeps, now: datetime
) -> tuple[ReportLoss, ...]:
    """Return the losses of VMs whose agent is silent."""
    replicas = watched(state, vms, now)
    if not replicas:
        return ()
    points = last_points(state, fleet_deps.metrics, now)
    read = heartbeats_to_read(state.job, replicas, points, now)
    heartbeats: dict[str, datetime | None] = {}
    fleet_deps.run_all([partial(_read, vm, fleet_deps.fleet, heartbeats) for _, vm in read])
    others_write = is_undecided(read, points, heartbeats, now) and _is_any_alive(fleet_deps, now)
    silent = find_silent_agents(
        state.job, replicas, read, points, heartbeats, now, others_write=others_write
    )
    for loss in silent:
        _log.warning(
            "%s runs, but its agent is silent", loss.name, extra={"job_id": state.job.job_id}
        )
    return silent


def suspend_timeouts(
    steps: Steps,
    state: State,
    vms: tuple[Vm, ...],
    fleet_deps: FleetDeps,
    now: datetime,
    heartbeats: dict[str, datetime | None],
) -> Steps:
    """Return the steps without the startup timeouts of VMs whose agents write heartbeats, or points
    of their series where heartbeats are unknown.

    `heartbeats` are those that this delivery has read. The timeouts of VMs whose heartbeat is not
    read now wait, too.
    """
    timeouts = suspendable_timeouts(steps, state, vms, now)
    if not timeouts:
        return steps
    read = part_to_read(tuple(timeouts.items()), now, minutes=1)
    unread = [vm for _, vm in read if vm.instance_id not in heartbeats]
    fleet_deps.run_all([partial(_read, vm, fleet_deps.fleet, heartbeats) for vm in unread])
    # A heartbeat that could not be read now counts as fresh: it is no evidence.
    signs = {name: heartbeats.get(vm.instance_id, now) for name, vm in read}
    if None in signs.values():
        points = last_points(state, fleet_deps.metrics, now)
        signs |= {
            name: points.get(vm.replica_id)
            for name, vm in read
            if signs[name] is None and vm.replica_id is not None
        }
    patience = {
        step.name: patience_with(state.job, step.replica)
        for step in steps.steps
        if isinstance(step, ReportLoss)
    }
    silent = {name for name, sign in signs.items() if is_silent(sign, now, patience[name])}
    return without_timeouts(steps, timeouts.keys() - silent)


def _is_any_alive(fleet_deps: FleetDeps, now: datetime) -> bool:
    """Whether Cloud Monitoring shows a fresh point of any agent of the project."""
    return fleet_deps.metrics is not None and any(count_alive(fleet_deps.metrics, now).values())


def _read(vm: Vm, fleet: Fleet, heartbeats: dict[str, datetime | None]) -> None:
    """Add the VM's heartbeat to `heartbeats`: None if it is unknown.

    After a rate limit, nothing is added.
    """
    try:
        heartbeats[vm.instance_id] = fleet.last_heartbeat(vm)
    except TemporaryError as error:
        _log.info("the heartbeat is not read now: %s", error)
