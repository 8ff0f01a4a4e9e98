"""The Store on Firestore (native mode).

    jobs/{job_id}                          Job, `is_live`, `vm_hash`; `submitted_at` or `api_submitted_at`, if submitted
    jobs/{job_id}/replicas/{replica key}   Replica, `ever_ready`, `lost_until`, `failed_until`
    jobs/{job_id}/ledger/{event key}       LedgerEntry, `is_pending`, `is_notification_pending` while it is open
    rejections/{key}                       Rejection
    orphans/{instance id}                  Orphan
    stockouts/{zone and machine kind}      Stockout
    leases/{job_id}                        `expires_at` and `holder` of the lease on work for this job
    control/admission_token                the last admission; its update time is the admission token

Documents that no decision needs any more have the time of their deletion in `expire_at` (a lease has `expires_at`):
replicas of earlier attempts, rejections, stockouts, and the history of deleted jobs. TTL policies of infra/ delete them
within about a day after that time. Nothing depends on the exact time.

A change is one batched write. Its preconditions are the update times that were read, and that the ledger entry does not
exist yet. There are no transactions and no locks: on a contended document that is several times faster, and as correct.
"""

from __future__ import annotations

from trainmaster.gcp.firestore.incidents import Incidents
from trainmaster.gcp.firestore.job_queries import JobQueries
from trainmaster.gcp.firestore.leases import Leases
from trainmaster.gcp.firestore.ledger import Ledgers
from trainmaster.gcp.firestore.states import States


class FirestoreStore(States, Ledgers, JobQueries, Leases, Incidents):
    """See `trainmaster.ports.Store`. Thread-safe, as its client is."""
