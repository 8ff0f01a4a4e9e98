"""Virtual machines: Compute Engine VMs and Cloud TPU nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.errors import TemporaryError

Item = TypeVar("Item")


class ZonesUnreachableError(TemporaryError):
    """A listing lacks zones that Google cannot reach now: a VM of such a zone is not lost.

    It is an error so that no caller can take a part for the whole. `reached` is for callers that
    use the part.
    """

    def __init__(self, listed: Sequence[Any], zones: Sequence[str], refusal: str = "") -> None:
        super().__init__(refusal or f"Google cannot reach {', '.join(zones)}")
        self.listed = tuple(listed)
        """The VMs of the other zones."""
        self.zones = tuple(zones)
        """The zones that the listing lacks."""
        self.refusal = refusal
        """Google's refusal, if that is why; else empty."""


class Reached(NamedTuple, Generic[Item]):
    """A listing that may lack zones."""

    listed: tuple[Item, ...]
    unreachable: tuple[str, ...]
    """Zones that the listing lacks."""
    refusal: str
    """Google's refusal, if that is why it lacks them; else empty."""


def reached(list_items: Callable[[], tuple[Item, ...]]) -> Reached[Item]:
    """Return what a listing of the fleet has, also if it lacks zones."""
    try:
        return Reached(list_items(), unreachable=(), refusal="")
    except ZonesUnreachableError as error:
        return Reached(error.listed, error.zones, error.refusal)


def complete(
    listed: Sequence[Item], unreachable: Sequence[str], refusal: str = ""
) -> tuple[Item, ...]:
    """Return the listing. Raises ZonesUnreachableError if it lacks a zone."""
    if unreachable:
        raise ZonesUnreachableError(listed, unreachable, refusal)
    return tuple(listed)


@dataclass(frozen=True, slots=True)
class Created:
    """All VMs of the request exist. This call created them, or an earlier one of the same names."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The request was accepted, but did not finish within the time that one call may wait.

    Call again later.
    """


@dataclass(frozen=True, slots=True)
class NotCreated:
    """None of the VMs of the request exists."""

    kind: CapacityErrorKind
    code: str
    """Google's error code."""
    message: str
    """Google's error message."""
    zones_available: tuple[str, ...] = ()
    """Zones that the error message suggests, if any."""


CreateOutcome = Created | Pending | NotCreated


class Fleet(Protocol):
    """All VMs of the project that carry a job's label.

    Each call waits a bounded time and then reports that the operation is still pending. Network
    errors, 5xx responses and rate limits (403 rateLimitExceeded, 429) raise TemporaryError.
    """

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        """Return the job's VMs in every zone and its TPU nodes in `tpu_zones`, in any state.

        `zones`, in which the job may have VMs, are listed one by one while Google cannot list all
        zones at once. Raises ZonesUnreachableError if some zones cannot be listed.
        """
        ...

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """Return all VMs with any job's label, in every zone and any state, with their creation
        times.

        VMs with the label but a name that no replica can have are not ours, and are left out.
        `zones` and errors: as for `list_vms`.
        """
        ...

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs of one bulk insert, all or nothing.

        Idempotent: equal `create.request_key`s are sent with the same request id, and names that
        already exist count as created. `metadata` is written unchanged to every VM. An error of the
        long-running operation is reported as NotCreated, like an error of the call.
        """
        ...

    def delete(self, vm: Vm) -> bool:
        """Delete the VM by its numeric instance id, so that a newer VM of the same name is never
        deleted.

        Return True if the VM does not exist any more, False if the deletion is still running.
        """
        ...

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Write the directive into the VM's metadata, with the metadata fingerprint that `vm` was
        listed with.

        Return False if the metadata has changed since, or if the VM does not exist.
        """
        ...

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to this job: replace its metadata in one write, then its labels.

        As for `write_directive`, a fingerprint that has changed means that nothing is written.
        Return whether all was written.
        """
        ...

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return when the VM's agent last wrote a heartbeat. None: unknown."""
        ...

    def reported_metric(self, vm: Vm) -> str | None:
        """Return what the agent of a trial's VM last wrote about its metric, unchecked: a program
        on the VM may have written it. None: unknown.
        """
        ...

    def release(self, job: Job) -> bool:
        """Delete the other resources of an ended job without VMs, such as placement policies.

        Idempotent.

        Return True if none is left, False if a deletion is still running.
        """
        ...

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Return the serial console output from byte `start` on, and where to continue."""
        ...


class AddressBook(Protocol):
    """Network addresses of VMs, which are known before the VMs exist."""

    def address(self, name: str, zone: str) -> str:
        """Return the `host:port` at which the other replicas reach the VM of this name."""
        ...

    def channel_address(self, name: str, zone: str) -> str:
        """Return the `host:port`, of UDP, at which the agents of the other replicas reach the agent
        of this VM.
        """
        ...
