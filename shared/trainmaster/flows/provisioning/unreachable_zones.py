"""Zones that Google cannot reach now: a listing lacks their VMs, whose programs may still run."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import may_run, may_run_where_requested
from trainmaster.core.model.vm import DirectiveAction, Vm
from trainmaster.core.reconcile.steps import Readiness, Steps
from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning.execute_steps import record_out_of_reach
from trainmaster.ports import Reached


def hidden_zones(job: Job, unreachable: Sequence[str]) -> tuple[str, ...]:
    """Return the zones that the job has left, in which its programs may run unseen.

    `unreachable`: the zones that the listing lacks.
    """
    left = (zone.zone for zone in job.placement.left if zone.may_run)
    return tuple(zone for zone in left if zone in unreachable)


def explain_wait(state: State, steps: Steps, listing: Reached[Vm], deps: Deps) -> None:
    """Record that the job waits for zones that cannot be reached, if it does."""
    job = state.job
    refusal = listing.refusal
    if job.zone in listing.unreachable and may_run_where_requested(state):
        record_out_of_reach(job.job_id, refusal or f"Google cannot reach {job.zone}", deps)
    hidden = hidden_zones(job, listing.unreachable)
    if hidden and not job.state.is_terminal and _awaits_start(state, steps, listing.listed):
        zones = " and ".join(hidden)
        where = f"{zones}, where programs of this job may still run, so no other one starts"
        record_out_of_reach(job.job_id, refusal or f"Google cannot reach {where}", deps)


def _awaits_start(state: State, steps: Steps, vms: Sequence[Vm]) -> bool:
    """Whether programs of the job could start now: those of a round, or of held replicas."""
    held = {
        vm.replica_id for vm in vms if vm.directive and vm.directive.action is DirectiveAction.HOLD
    }
    return steps.readiness is Readiness.READY or any(
        may_run(state.job, replica) and replica.replica_id in held for replica in state.replicas
    )
