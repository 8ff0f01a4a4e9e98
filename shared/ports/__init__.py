"""The outside world as the flows see it: one Protocol per external service.

Each Protocol's docstring is a contract. Its adapters are in `shared.gcp` (Google Cloud and its emulators) and in
`shared.memory` (one process, no network); both pass the same contract tests.
"""

from shared.ports.access import Access, CallersProjectError, UnknownTokenError
from shared.ports.bus import Bus
from shared.ports.clock import Clock
from shared.ports.fleet import (
    AddressBook,
    Created,
    CreateOutcome,
    Fleet,
    NotCreated,
    Pending,
)
from shared.ports.identity import Claims, IdentityError, Tokens
from shared.ports.job_log import JobLog
from shared.ports.object_times import CreatedObject, ObjectTimes
from shared.ports.objects import BucketForbiddenError, ObjectForbiddenError, Objects
from shared.ports.resources import Existence, Resources
from shared.ports.store import LOST_PEERS_PAGE, Store
from shared.ports.store_values import (
    AdmissionToken,
    AlreadyRecordedError,
    JobPosition,
    Lease,
    LiveJobs,
    Loaded,
    Orphan,
    PendingEntries,
    Rejection,
)
from shared.ports.suggester import Suggester

__all__ = [
    "LOST_PEERS_PAGE",
    "Access",
    "AddressBook",
    "AdmissionToken",
    "AlreadyRecordedError",
    "BucketForbiddenError",
    "Bus",
    "CallersProjectError",
    "Claims",
    "Clock",
    "CreateOutcome",
    "Created",
    "CreatedObject",
    "Existence",
    "Fleet",
    "IdentityError",
    "JobLog",
    "JobPosition",
    "Lease",
    "LiveJobs",
    "Loaded",
    "NotCreated",
    "ObjectForbiddenError",
    "ObjectTimes",
    "Objects",
    "Orphan",
    "Pending",
    "PendingEntries",
    "Rejection",
    "Resources",
    "Store",
    "Suggester",
    "Tokens",
    "UnknownTokenError",
]
