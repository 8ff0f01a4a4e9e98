"""Reading heartbeats of agents, within a reconciliation that the sweep requested."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from trainmaster.core.model.job import State
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.heartbeat import (
    find_silent_agents,
    heartbeats_to_read,
    is_silent,
    part_to_read,
    suspendable_timeouts,
    without_timeouts,
)
from trainmaster.core.reconcile.steps import ReportLoss, Steps
from trainmaster.errors import TemporaryError
from trainmaster.ports import Fleet

_log = logging.getLogger(__name__)


def find_silent(
    state: State,
    vms: tuple[Vm, ...],
    fleet: Fleet,
    run_all: Callable[[Sequence[Callable[[], None]]], None],
    now: datetime,
) -> tuple[ReportLoss, ...]:
    """Return the losses of VMs whose agent is silent. `run_all` is explained at `flows.fleet_deps.FleetDeps`."""
    read = heartbeats_to_read(state, vms, now)
    heartbeats: dict[str, datetime] = {}
    run_all([partial(_read, vm, fleet, heartbeats) for _, vm in read])
    silent = find_silent_agents(state.job, read, heartbeats, now)
    for loss in silent:
        _log.warning("%s runs, but its agent is silent", loss.name, extra={"job_id": state.job.job_id})
    return silent


def suspend_timeouts(
    steps: Steps,
    state: State,
    vms: tuple[Vm, ...],
    fleet: Fleet,
    run_all: Callable[[Sequence[Callable[[], None]]], None],
    now: datetime,
    heartbeats: dict[str, datetime],
) -> Steps:
    """Return the steps without the startup timeouts of VMs whose agents write heartbeats.

    `heartbeats` are those that this delivery has read. The timeouts of VMs whose heartbeat is not read now wait, too.
    """
    timeouts = suspendable_timeouts(steps, state, vms, now)
    if not timeouts:
        return steps
    read = part_to_read(tuple(timeouts.items()), now, 1)
    run_all([partial(_read, vm, fleet, heartbeats) for _, vm in read if vm.instance_id not in heartbeats])
    silent = {name for name, vm in read if is_silent(heartbeats.get(vm.instance_id), now)}
    return without_timeouts(steps, timeouts.keys() - silent)


def _read(vm: Vm, fleet: Fleet, heartbeats: dict[str, datetime]) -> None:
    """Add the VM's heartbeat to `heartbeats` if it is known. A rate limit makes it unknown for now."""
    try:
        last = fleet.last_heartbeat(vm)
    except TemporaryError as error:
        _log.info("the heartbeat is not read now: %s", error)
        return
    if last is not None:
        heartbeats[vm.instance_id] = last
