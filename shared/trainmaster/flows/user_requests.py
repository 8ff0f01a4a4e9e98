"""Requests of users about an existing job: cancel it, delete it, change its labels, or release the
machines that it keeps for a next job.

All of them may be repeated. All but `release_machines` raise PermanentError if the job does not
exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.core.actions import ReleaseMachines, SetLabels
from trainmaster.core.decisions import Reason
from trainmaster.core.events import (
    CancelRequested,
    DeleteRequested,
    LabelsChanged,
    MachinesReleased,
)
from trainmaster.core.model.job import Label
from trainmaster.core.model.machine_set import ReleaseCause
from trainmaster.flows.commit.record import Deps, record


def cancel_job(job_id: str, by: str, deps: Deps) -> None:
    """Cancel the job and delete its VMs.

    Does nothing if the job has ended. `by` names the user in messages.
    """
    record(CancelRequested(job_id, by, deps.clock()), deps)


def delete_job(job_id: str, request_key: str, deps: Deps, *, by: str) -> bool:
    """Remove an ended job from lists. Its id stays used. Its history is kept for 30 days more.

    Return False if the job has not ended. `request_key` identifies the request, so that a repeated
    request is recorded once. `by` names the user in the ledger.
    """
    recorded = record(DeleteRequested(job_id, request_key, deps.clock(), by), deps)
    return recorded.entry.decision.reason is not Reason.NOT_ENDED


def release_machines(job_id: str, deps: Deps, *, by: str) -> bool:
    """Delete the machines that an ended job keeps for a next job. Return False if it keeps none, or
    does not exist.

    `by` names the user in the ledger.
    """
    loaded = deps.store.load(job_id)
    machines = loaded.state.machine_set if loaded else None
    if loaded is None or machines is None or not loaded.state.keeps_machines:
        return False
    # The tenure, the number of the job among the users of the machines, tells this request from one
    # about the machines of a later job.
    event = MachinesReleased(job_id, machines.tenure, ReleaseCause.USER, deps.clock(), by)
    return isinstance(record(event, deps).entry.decision.action, ReleaseMachines)


def change_labels(
    job_id: str,
    labels: Mapping[str, str],
    request_key: str,
    seen: int | None,
    deps: Deps,
    *,
    by: str,
) -> bool:
    """Replace all labels of the job, whether it has ended or not.

    `seen`: the version of the labels that the user has seen; if they have changed since, nothing is
    replaced, and False is returned. None: they are replaced in any case. `request_key` identifies
    the request, so that a repeated request is recorded once. `by` names the user in the ledger.
    """
    new_labels = tuple(Label(key, value) for key, value in sorted(labels.items()))
    request = LabelsChanged(job_id, new_labels, request_key, deps.clock(), by, seen)
    recorded = record(request, deps)
    return isinstance(recorded.entry.decision.action, SetLabels)
