"""Messages from one function to another: reconcile a job's VMs, look for orphan VMs, reconcile a
job's trials.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from trainmaster.messaging.decoding import MessageModel, decode_json, has_field

NUMBER_MAX: Final = 1000
"""Largest `number`: far more often than any request is continued."""


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """A request to make the VMs of a job equal its stored state."""

    job_id: str
    entry_key: str | None = None
    """Key of the ledger entry whose effect the request is.

    None if the request is from the sweep, the scheduled pass for what no event reported.
    """
    number: int = 1
    """1, or more for a request that continues another one."""


@dataclass(frozen=True, slots=True)
class OrphanSearch:
    """A provision request without a job: look for VMs that belong to no job."""


@dataclass(frozen=True, slots=True)
class AdmissionPass:
    """A provision request without a job: admit the queued jobs that fit."""


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """A request to make the trials of a tuning job equal its ledger."""

    job_id: str
    number: int = 1
    """1, or more for a request that continues another one."""


class JobRequest(MessageModel):
    """A request about one job."""

    version: Literal[1]
    job_id: str
    number: int = Field(1, ge=1, le=NUMBER_MAX)


class ProvisionMessage(JobRequest):
    """A request to provision a job, as `ProvisionRequest`."""

    entry: str | None = None


class MessageWithoutJob(MessageModel):
    """An orphan search or an admission pass: only one of the two fields is sent."""

    version: Literal[1]
    admission: Literal[True] = True
    orphans: Literal[True] = True


def encode_provision(request: ProvisionRequest) -> bytes:
    """Return the data of the message to the topic `provision`."""
    return _encode(request.job_id, request.number, entry=request.entry_key)


def encode_orphan_search() -> bytes:
    """Return the data of the message to `provision` that `OrphanSearch` describes."""
    return json.dumps({"version": 1, "orphans": True}).encode()


def encode_admission_pass() -> bytes:
    """Return the data of the message to `provision` that `AdmissionPass` describes."""
    return json.dumps({"version": 1, "admission": True}).encode()


def encode_tune(request: TuneRequest) -> bytes:
    """Return the data of the message to the topic `tune`."""
    return _encode(request.job_id, request.number)


def _encode(job_id: str, number: int, entry: str | None = None) -> bytes:
    fields: dict[str, object] = {"version": 1, "job_id": job_id}
    if entry is not None:
        fields["entry"] = entry
    if number > 1:
        fields["number"] = number
    return json.dumps(fields).encode()


def decode_provision(data: bytes) -> ProvisionRequest | OrphanSearch | AdmissionPass:
    """Return the request. Raises PermanentError if the message is malformed."""
    if has_field(data, "orphans"):
        decode_json(MessageWithoutJob, data)
        return OrphanSearch()
    if has_field(data, "admission"):
        decode_json(MessageWithoutJob, data)
        return AdmissionPass()
    message = decode_json(ProvisionMessage, data)
    return ProvisionRequest(message.job_id, message.entry, message.number)


def decode_tune(data: bytes) -> TuneRequest:
    """Return the request. Raises PermanentError if the message is malformed."""
    message = decode_json(JobRequest, data)
    return TuneRequest(message.job_id, message.number)
