"""Replicas that should have spoken by now: what no event reports, and only the time that passes tells."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from shared.core.events import LossCause
from shared.core.model.job import ReplicaState, State
from shared.core.reconcile.plan import DirectiveAction, Lost, Vm, VmStatus, chosen, desired

STARTUP_TIMEOUT_S: Final = 20 * 60
"""How long a incarnation that was ordered on a running VM may take to speak: a minute for the boot, several for packages, of
which the largest are gigabytes. An agent that cannot set up says so by itself; this is for one that says nothing."""


def find_startup_timeouts(state: State, vms: tuple[Vm, ...], now: datetime) -> tuple[Lost, ...]:
    """Replicas that should have spoken by now: the VM runs, was told this very incarnation, and `STARTUP_TIMEOUT_S` have passed.

    Time counts from the latest of: the incarnation was ordered; the VM came up, so that neither a slow create nor waiting for
    capacity is silence; for a replica that was held, the last peer came back; where slices have to be told of each
    other, the last one came up. `state` is the whole attempt.
    """
    wants = desired(state.job, state.replicas)
    there = chosen(state.job, wants, vms)
    slices_up = [vm.started_at for vm in vms if vm.started_at and state.job.plan.slices]
    found = []
    for want in wants:
        replica, vm = want.replica, there.get(want.name)
        if vm is None or vm.status is not VmStatus.RUNNING or vm.vm_generation != replica.vm_generation:
            continue
        if replica.state is ReplicaState.RUNNING or want.directive.action is not DirectiveAction.RUN:
            continue
        if vm.directive is None or vm.directive.order != want.directive.order:
            continue
        if replica.ordered_at is None or vm.started_at is None:
            continue
        since = [replica.ordered_at, vm.started_at, *slices_up]
        if replica.state is ReplicaState.HELD:
            since += [peer.ready_at for peer in state.replicas if peer.ready_at]
        if now - max(since) >= timedelta(seconds=STARTUP_TIMEOUT_S):
            found.append(Lost(replica, want.name, vm, LossCause.STARTUP_TIMEOUT))
    return tuple(found)
