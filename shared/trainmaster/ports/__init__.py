"""The outside world as the flows see it: one Protocol per external service.

Each Protocol's docstring is a contract. Its adapters are in `trainmaster.gcp` (Google Cloud and its
emulators) and in `trainmaster_local.memory` (one process, no network); both pass the same contract
tests.
"""

from trainmaster.ports.fleet import (
    AddressBook,
    Created,
    CreateOutcome,
    Fleet,
    NotCreated,
    Pending,
    Reached,
    ZonesUnreachableError,
    complete,
    reached,
)
from trainmaster.ports.objects import (
    BucketForbiddenError,
    CreatedObject,
    ObjectForbiddenError,
    Objects,
    ObjectTimes,
)
from trainmaster.ports.services import (
    Access,
    Advisor,
    Bus,
    CallersProjectError,
    Claims,
    Clock,
    Existence,
    IdentityError,
    JobLog,
    Resources,
    Suggester,
    Tokens,
    UnknownTokenError,
)
from trainmaster.ports.store import (
    COMMIT_MAX,
    LOSSES_READ,
    Incidents,
    JobQueries,
    Leases,
    Ledgers,
    States,
    Store,
)
from trainmaster.ports.store_values import (
    CLOCKS_DIFFER,
    MACHINES,
    AdmissionToken,
    AlreadyRecordedError,
    JobFilter,
    JobPosition,
    Lease,
    LiveJobs,
    Loaded,
    LoadedSet,
    Orphan,
    PendingEntries,
    Rejection,
    SweepRequests,
    VmOwner,
)
