"""Messages from one function to another: reconcile a job's VMs, look for orphan VMs, reconcile a job's trials."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from shared.messaging.decoding import MessageModel, decode_json, has_field


@dataclass(frozen=True, slots=True)
class OrphanSearch:
    """A provision request without a job: look for VMs that belong to no job."""


class JobRequest(MessageModel):
    version: Literal[1]
    job_id: str


class OrphanSearchRequest(MessageModel):
    version: Literal[1]
    orphans: Literal[True]


def encode_provision(job_id: str) -> bytes:
    return json.dumps({"version": 1, "job_id": job_id}).encode()


def encode_orphan_search() -> bytes:
    return json.dumps({"version": 1, "orphans": True}).encode()


def encode_tune(job_id: str) -> bytes:
    return json.dumps({"version": 1, "job_id": job_id}).encode()


def decode_provision(data: bytes) -> str | OrphanSearch:
    """Return the job id, or the request to look for orphans. Raises PermanentError if the message is malformed."""
    if has_field(data, "orphans"):
        decode_json(OrphanSearchRequest, data)
        return OrphanSearch()
    return decode_json(JobRequest, data).job_id


def decode_tune(data: bytes) -> str:
    """Return the id of the tuning job. Raises PermanentError if the message is malformed."""
    return decode_json(JobRequest, data).job_id
