"""Capacity as all jobs have found it: noted with each request for VMs, and read when a job begins a
pass, which requests its VMs from one candidate after the other.

A candidate is a zone of the job, or of one of the alternatives that its job file lists. Its
prospect is the chance that the VMs can be created there, by the latest outcomes and by Google's
advice.
"""

from __future__ import annotations

import logging

from trainmaster.core.model.capacity import (
    Outcome,
    Prospect,
    candidate_keys,
    machine_kind,
    requests_with_advice,
)
from trainmaster.core.model.job import Job
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.rules.outlook import estimate_prospects
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit.record import Deps

_log = logging.getLogger(__name__)


def gather_outlook(job: Job, deps: Deps) -> tuple[Prospect, ...]:
    """Return the prospect of each candidate of the job; empty if it has only one, or no VMs of its
    own.

    Roles with accelerators decide, if there are any. It costs one read per zone, such role and kind
    of VM.
    """
    if len(job.plan.where.zones) == 1 or job.tuning is not None:
        return ()
    keys = candidate_keys(job.plan)
    outcomes = deps.store.outcomes(
        list(dict.fromkeys(key for of_candidate in keys for key in of_candidate))
    )
    advice = (
        deps.advisor.advise(requests_with_advice(job.plan), deps.clock()) if deps.advisor else {}
    )
    return estimate_prospects(keys, outcomes, deps.clock(), advice)


def note_outcome(create: Create, deps: Deps, *, is_created: bool) -> None:
    """Note how a request ended. Jobs go on without the note if it cannot be written."""
    kind = machine_kind(create.group, create.price)
    try:
        deps.store.note_outcome(Outcome(create.zone, kind, deps.clock(), is_created))
    except TemporaryError as error:
        _log.warning(
            "%s in %s: the outcome of a request was not noted: %s", kind, create.zone, error
        )
