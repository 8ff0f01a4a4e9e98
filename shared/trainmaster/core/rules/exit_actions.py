"""The actions of decisions about an exit: the restart of a replica or a round, another VM, or the
rerun of the job.

`replica_exit` decides which one follows, and what it is charged to.
"""

from __future__ import annotations

from trainmaster.core.actions import (
    Action,
    BeginRound,
    Budget,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    StopRound,
)
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.failure_row import Following, continued


def restart_action(
    case: Case, charge: Budget, following: Following | None = None, bug: str | None = None
) -> Action:
    """Return the restart of the replica, or of the round.

    `following`: the effect of the decision, if the program failed; None: it did not fail. `bug`:
    the signature that the next exit must repeat to prove a bug.
    """
    key = case.replica.key
    event = case.event
    is_failure = charge is Budget.RESTARTS
    is_quick = is_failure and bool(case.quick_failures)
    failing = continued(case.record.failing, event, following, case.now) if following else None
    if case.is_verdict:
        return BeginRound(
            case.job.round.number,
            key,
            charge,
            is_quick_failure=is_quick,
            bug=bug,
            failing=failing,
        )
    return RestartReplica(
        key,
        charge,
        is_quick_failure=is_quick,
        bug=bug,
        measurement=event.measurement,
        failing=failing,
        excused=case.state.excused,
    )


def replace_action(case: Case) -> Action:
    """Return the restart on another VM, with a new round if members restart together."""
    replacement = ReplaceVm(
        case.replica.key,
        Budget.RESTARTS,
        wasted=case.replica.wasted,
        measurement=case.event.measurement,
    )
    return (
        StopRound(case.job.round.number, case.replica.key, replacement)
        if case.is_verdict
        else replacement
    )


def rerun_action(
    case: Case,
    charge: Budget,
    following: Following | None = None,
    bug: str | None = None,
    *,
    replaces_vm: bool = False,
) -> RerunJob:
    """Return the rerun of the job. `following`, `bug`: as of `restart_action`."""
    key = case.replica.key
    failing = continued(case.record.failing, case.event, following, case.now) if following else None
    return RerunJob(
        charge,
        lost=key if replaces_vm else None,
        wasted=case.replica.wasted if replaces_vm else 0,
        reporter=key,
        quick_failure=key if charge is Budget.RERUNS and case.quick_failures else None,
        bug=bug,
        failing=failing,
    )
