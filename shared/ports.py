"""The outside world as the flows see it. Each Protocol's docstring is the contract its adapters are tested against.

Adapters: `shared.gcp` (Google Cloud and its emulators) and `shared.memory` (one process, no network).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from shared.core.evolve import Change
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, State
from shared.core.model.tuning import Tuning
from shared.core.reconcile.plan import Create, Directive, LabelledVm, Vm
from shared.core.reconcile.zone_order import Stockout
from shared.core.reporting.job_log import ServiceLine


class CapacityErrorKind(StrEnum):
    """Why Compute did not create VMs, as far as the answer differs."""

    STOCKOUT = "stockout"  # no capacity in the zone: try the next
    QUOTA = "quota"  # the project's quota in the region: wait
    DENIED = "denied"  # permission, network, image: trying again cannot help
    INTERNAL = "internal"  # anything else Google says


@dataclass(frozen=True, slots=True)
class Created:
    """All VMs of the insert exist (created now, or by an earlier call with the same names)."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Accepted and not finished within the time this call may wait: ask again later."""


@dataclass(frozen=True, slots=True)
class NotCreated:
    """None of the insert's VMs exists. `code` and `message` are Google's; `zones_available` where Google named some."""

    kind: CapacityErrorKind
    code: str
    message: str
    zones_available: tuple[str, ...] = ()


CreateOutcome = Created | Pending | NotCreated


class Fleet(Protocol):
    """The machines. Calls are short: each waits a bounded time and then says that it is still pending.

    Network errors, 5xx and rate limits (403 rateLimitExceeded, 429) raise TemporaryError.
    """

    def list_vms(self, job_id: str, tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        """All VMs that carry the job's label, in every zone, and its TPU nodes in these; in any state but gone."""
        ...

    def list_all(self) -> tuple[LabelledVm, ...]:
        """All VMs that carry any job's label, in every zone, in any state but gone; with the time of their creation.
        What carries the label under a name that no replica has is not ours, and not listed."""
        ...

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """One bulk insert, all or nothing, idempotent: the same request id for the same `create.request_key`.

        `metadata` is written to every VM as it is. Names that exist already count as created. An error that the
        operation reports later is NotCreated just like one at the call.
        """
        ...

    def delete(self, vm: Vm) -> bool:
        """Delete by numeric instance id, so that a younger VM of the same name is never hit. True: gone; False: on its
        way. A VM that does not exist is gone."""
        ...

    def direct(self, vm: Vm, directive: Directive) -> bool:
        """Write the directive with the fingerprint the VM was listed with. False: someone else wrote meanwhile, or the
        VM is gone."""
        ...

    def release(self, job: Job) -> bool:
        """Give back what was made for the job beside its VMs, once it has ended and has none. True: nothing is left;
        False: on its way. Idempotent."""
        ...

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Console output from byte `start` on, and where to go on from."""
        ...


class AddressBook(Protocol):
    def address(self, name: str, zone: str) -> str:
        """`host:port` at which a VM of this name is reached by its peers, known before the VM exists."""
        ...


class Bus(Protocol):
    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Returns when the message is stored; raises TemporaryError when that cannot be known."""
        ...


class JobLog(Protocol):
    """The job's log, where its user reads it."""

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Idempotent: a line of the same key and time is the same one. Raises TemporaryError for whatever goes wrong,
        since nothing of a job depends on it."""
        ...


class Suggester(Protocol):
    """What the next trial of a tuning job tries."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        """One value for each parameter, in their order, all within what may be tried. The same tuning and seed give the
        same; a space with an end is tried without repeating anything, trials under way included."""
        ...


class Objects(Protocol):
    """Cloud Storage. NotFound is None, errors is TemporaryError."""

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None: ...

    def write(self, uri: str, data: bytes, *, content_type: str) -> None: ...

    def delete(self, uri: str) -> None: ...


class UnknownTokenError(Exception):
    """Google does not know the token: it is expired, revoked or made up."""


class Access(Protocol):
    """The project's IAM. Trouble is TemporaryError, never an answer."""

    def granted(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        """Those of the permissions that the token's bearer has on the project. Raises UnknownTokenError."""
        ...

    def may_act_as(self, token: str, account: str) -> bool:
        """Whether the token's bearer may have machines run as this service account. Raises UnknownTokenError."""
        ...

    def project_number(self, token: str) -> str:
        """Google's number of the project, for a bearer who may see it. Raises UnknownTokenError."""
        ...

    def email(self, token: str) -> str | None:
        """Whose token it is, where its scopes tell."""
        ...


class Clock(Protocol):
    def __call__(self) -> datetime:
        """Now, aware, UTC."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read, with what it takes to write it only if nobody else has written since.

    `tokens` are the adapter's own, by document: `job`, and a replica's key.
    """

    state: State
    tokens: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Of one job in the list of all jobs: by time of creation, then by id."""

    created_at: datetime
    job_id: str


@dataclass(frozen=True, slots=True)
class AdmissionToken:
    """All jobs that had not ended when it was taken. A commit on it is the first one since, or none."""

    token: object
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A submission that is not a job. `key` is made of its content, so that a redelivery is the same rejection."""

    key: str
    source: str
    job_id: str | None
    problems: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Orphan:
    """A VM with a job's label whose job does not exist. `instance_id` is Compute's numeric one: never used again."""

    instance_id: str
    name: str
    zone: str
    label: str
    first_seen_at: datetime


class AlreadyRecordedError(Exception):
    """The ledger has an entry of this key: the event was judged before (perhaps by ourselves, with the reply lost)."""


class Store(Protocol):
    """The state. Trouble raises TemporaryError; a lost race ConflictError."""

    def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        """The job; with it the replica of this key, and with `lost_peers` also the replicas of its attempt that were
        ever lost. None: no such job. An unknown replica is simply absent."""
        ...

    def load_attempt(self, job_id: str) -> Loaded | None:
        """The job and every replica of its present attempt."""
        ...

    def commit(
        self, loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        """One atomic write: the entry is created, the change's documents are created, or updated if unchanged since
        `loaded`; with a `admission_token`, only if nothing was written on one since it was taken. Raises AlreadyRecordedError
        where the entry exists, ConflictError where a document moved; then nothing was written."""
        ...

    def entry(self, job_id: str, key: str) -> LedgerEntry | None: ...

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        """All entries in the order of their commits."""
        ...

    def pending(self, job_id: str) -> tuple[str, ...]:
        """Keys of the job's entries whose effects were not yet seen done."""
        ...

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        """Idempotent; the first time stands."""
        ...

    def jobs_with_pending(self) -> tuple[str, ...]:
        """Ids of all jobs that have such entries."""
        ...

    def live_jobs(self) -> tuple[Job, ...]:
        """All jobs that have not ended."""
        ...

    def admission_token(self) -> AdmissionToken:
        """The next turn to change what all jobs together may use."""
        ...

    def recent_jobs(self, limit: int, after: JobPlace | None = None) -> tuple[Job, ...]:
        """The youngest first, of one moment by descending id; with `after`, those that follow that place."""
        ...

    def created_since(self, moment: datetime) -> int:
        """How many jobs were created at that moment or later, trials of tuning jobs not counted."""
        ...

    def count_ready(self, job_id: str, attempt: int) -> int:
        """How many replicas of the attempt have ever been ready; sees every commit that returned before."""
        ...

    def reject(self, rejection: Rejection) -> None:
        """Idempotent by key."""
        ...

    def rejections(self) -> tuple[Rejection, ...]: ...

    def job_of_vm(self, name: str) -> str | None:
        """Id of the job, ended or not, that has a replica whose VM is called this; None where no job has."""
        ...

    def note_stockout(self, stockout: Stockout) -> None:
        """Of one zone and kind of machine the latest stands."""
        ...

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        """Those of that moment and later."""
        ...

    def report_orphan(self, orphan: Orphan) -> None:
        """Idempotent by instance id: who saw it first stands."""
        ...

    def orphans(self) -> tuple[Orphan, ...]:
        """All that were reported and not forgotten."""
        ...

    def forget_orphan(self, instance_id: str) -> None:
        """Idempotent."""
        ...
