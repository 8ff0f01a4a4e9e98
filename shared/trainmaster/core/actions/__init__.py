"""Actions: the changes that decisions make to the stored state.

A closed union in three families: actions on the job, on one replica, and on a trial of a tuning
job. An action holds only what `trainmaster.core.evolve` needs;
`trainmaster.core.decisions.Decision` says which rule chose it and why.
`trainmaster.core.transitions` applies them, with one module of the same name for each family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainmaster.core.actions.job_actions import (
    AcceptJob,
    BeginPreparing,
    BeginRound,
    BeginRunning,
    CancelJob,
    CompleteTuning,
    ContinueProvisioning,
    DeleteJob,
    DropMachines,
    FailJob,
    JobAction,
    NoteCost,
    NoteEmptyZones,
    ReleaseMachines,
    RerunJob,
    SaveRound,
    SetLabels,
    StopRound,
    SucceedJob,
)
from trainmaster.core.actions.replica_actions import (
    Budget,
    MarkHostReady,
    MarkReady,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    ReplicaAction,
    RestartReplica,
)
from trainmaster.core.actions.trial_actions import (
    BeginTrial,
    EndTrial,
    MarkTrialRunning,
    RecordMeasurements,
    StopTrial,
    TrialAction,
)


@dataclass(frozen=True, slots=True)
class Ignore:
    """Change nothing."""

    kind: Literal["ignore"] = "ignore"


Action = Ignore | AcceptJob | JobAction | ReplicaAction | TrialAction
