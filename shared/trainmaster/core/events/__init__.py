"""Events: facts that were reported, in the past tense, already decoded and checked for shape.

Every event has
    job_id    the job it is about
    key       derived from the event's content, not from its message: a fact that is reported twice
              has one key
    reads     what must be loaded to judge it

The key names the ledger entry. Creating the entry fails the second time, so that an event is judged
once.
"""

from trainmaster.core.events.job_events import (
    AllReady,
    CancelRequested,
    CapacityErrorKind,
    CostChecked,
    Deadline,
    DeadlinePassed,
    DeleteRequested,
    JobSubmitted,
    LabelsChanged,
    MachinesLost,
    MachinesReleased,
    MembersJoin,
    ProvisioningStarted,
    VmsNotCreated,
    VmsOutOfReach,
    VmsQueued,
    ZonesEmptied,
)
from trainmaster.core.events.reads import Reads
from trainmaster.core.events.replica_events import (
    End,
    ExitCause,
    IncarnationRef,
    MemberMissing,
    ProgramError,
    ReplicaExited,
    SaveOver,
    VmLost,
    VmNoticed,
    VmReady,
    VmRef,
)
from trainmaster.core.events.tuning_events import (
    StopRequested,
    TrialEnded,
    TrialsMeasured,
    TrialStarted,
    TrialSuggested,
    TrialUnpromising,
    TuningEnded,
)

ReplicaEvent = VmReady | ReplicaExited | VmLost | VmNoticed
JobEvent = (
    ProvisioningStarted
    | AllReady
    | MemberMissing
    | MembersJoin
    | SaveOver
    | VmsNotCreated
    | VmsOutOfReach
    | VmsQueued
    | ZonesEmptied
    | CancelRequested
    | CostChecked
    | LabelsChanged
    | DeleteRequested
    | MachinesLost
    | MachinesReleased
    | DeadlinePassed
)
TuningEvent = (
    TrialSuggested
    | TrialStarted
    | TrialsMeasured
    | TrialUnpromising
    | StopRequested
    | TrialEnded
    | TuningEnded
)
Event = JobSubmitted | ReplicaEvent | JobEvent | TuningEvent
