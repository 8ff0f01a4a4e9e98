"""Rule 4 for VMs that are lost before their agents report.

    first loss in a row     another VM at once
    further losses          another VM after a pause that doubles, up to a quarter of an hour
    third loss in a zone    in the next zone, with all other VMs that have not reported
    30th loss               the job FAILED

A replica that the job may run without (`gang: false`) stays in its zone, and its losses never end the job.

Such losses are a shortage of Spot VMs that no stockout reports, or an image that shuts its VM down. Without a limit,
they would cost a boot per minute and replica for as long as the job may run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from trainmaster.core.actions import Budget, ContinueProvisioning, FailJob, RerunJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules import messages
from trainmaster.core.rules.capacity_backoff import is_too_early, is_whole_gang_requested
from trainmaster.core.timeouts import EARLY_LOSSES_MAX, EARLY_LOSSES_PER_ZONE, RETRY_MAX, RETRY_MIN

DOUBLINGS_MAX: Final = 10
"""With these doublings, the pause is far longer than `RETRY_MAX`. Without a limit, it would overflow a timedelta."""


def judge_early_loss(state: State, replica: Replica, cause: str, now: datetime) -> Decision | None:
    """Decide about the loss of a VM whose agent has not reported; None: the VM is replaced at once.

    A move to another zone is decided with the whole attempt. `cause` begins the text.
    """
    job, who = state.job, replica.replica_id.words
    losses = replica.early_losses + 1
    series = f"{cause} before its agent reported, as loss {losses} of {who} in a row"
    if losses >= EARLY_LOSSES_MAX and is_required(job.plan, replica.replica_id):
        message = messages.internal_error(f"{who} lost {losses} VMs in a row before their agents reported; {cause}")
        return Decision(Rule.INTERNAL, Reason.VMS_LOST_EARLY, f"{series}: the job fails.", FailJob(message))
    zone_index = _zone_index(job, replica)
    if zone_index != job.placement.zone_index and not is_whole_gang_requested(state):
        text = f"{series}: the whole job moves to {job.plan.zones[zone_index]}, free of charge."
        action = RerunJob(Budget.FREE, zone_index, lost=replica.key, is_vm_taken=True)
        return Decision(Rule.VM_LOST, Reason.VMS_LOST_EARLY, text, action)
    if losses == 1 or (zone_index == job.placement.zone_index and is_too_early(job, now)):
        return None
    return _request_later(job, replica, series, zone_index, losses, now)


def _zone_index(job: Job, replica: Replica) -> int:
    """Return the zone for the next VM: the next one in order after `EARLY_LOSSES_PER_ZONE`, else the current one."""
    current = job.placement.zone_index
    is_exhausted = replica.early_losses_in_zone + 1 >= EARLY_LOSSES_PER_ZONE and is_required(
        job.plan, replica.replica_id
    )
    return (current + 1) % len(job.plan.zones) if is_exhausted else current


def _request_later(job: Job, replica: Replica, series: str, zone_index: int, losses: int, now: datetime) -> Decision:
    placement = job.placement
    pause = min(RETRY_MIN * 2 ** min(losses - 2, DOUBLINGS_MAX), RETRY_MAX)
    text = f"{series}: trying {job.plan.zones[zone_index]} in {pause.total_seconds():.0f} s, free of charge."
    action = ContinueProvisioning(zone_index, placement.round + 1, placement.since, now + pause, lost=replica.key)
    return Decision(Rule.VM_LOST, Reason.VMS_LOST_EARLY, text, action)
