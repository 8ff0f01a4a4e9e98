"""The datagrams of the peer channel: what one agent sends to another, and the proof that an agent
of the job wrote it.

    "TM1" · HMAC-SHA256 of the JSON, 32 bytes · JSON {"job", "attempt", "round", "from", "kind", …}

The key of the HMAC is the job's own, so agents of other jobs cannot make a valid datagram. All
fields are in docs/interfaces.md, section 3.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.agent.model.vm_config import IncarnationKey

MAGIC = b"TM1"
DIGEST_BYTES = hashlib.sha256().digest_size
BYTES_MAX = 1024  # of a datagram
KIND_CHARS_MAX = 32
SECONDS_MAX = 1e9  # about 30 years


@dataclass(frozen=True)
class Datagram:
    """One message of one member (a replica of a synchronous job) to another.

    All members start together: each common start is a round.
    """

    key: IncarnationKey
    """Attempt and round that it is about."""
    sender: int
    """The sender's number among the members."""
    kind: str
    """What it asks of its receiver, for example to save."""
    serial: int = 0
    """Counts the questions of this kind that the sender asked in this round. An answer has the
    number of its question.
    """
    answers: bool = False
    """Whether it is the answer to a datagram of this kind."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Times by name, counted from when it was sent: clocks of two VMs may differ."""
    number: int = 0
    """Number, in this round, of the request that a datagram to save belongs to."""


def encode(datagram: Datagram, job_id: str, secret: bytes) -> bytes:
    """Return the bytes to send. `secret`: key of the HMAC, which all agents of the job have."""
    body = {
        "job": job_id,
        "attempt": datagram.key.attempt,
        "round": datagram.key.incarnation,
        "from": datagram.sender,
        "kind": datagram.kind,
        "serial": datagram.serial,
        "answers": datagram.answers,
        "seconds": dict(datagram.seconds),
        "number": datagram.number,
    }
    data = json.dumps(body, separators=(",", ":")).encode()
    return MAGIC + hmac.digest(secret, data, "sha256") + data


def decode(data: bytes, job_id: str, secret: bytes) -> Datagram | None:
    """Return the datagram; None if no agent of this job wrote it, or if it is malformed."""
    body_start = len(MAGIC) + DIGEST_BYTES
    if not body_start < len(data) <= BYTES_MAX or not data.startswith(MAGIC):
        return None
    digest = data[len(MAGIC) : body_start]
    body = data[body_start:]
    if not hmac.compare_digest(digest, hmac.digest(secret, body, "sha256")):
        return None
    try:
        fields = json.loads(body)
        seconds = {str(name): float(value) for name, value in fields["seconds"].items()}
        are_seconds_valid = all(abs(value) <= SECONDS_MAX for value in seconds.values())
        if fields["job"] != job_id or not are_seconds_valid:
            return None
        return Datagram(
            key=IncarnationKey(int(fields["attempt"]), int(fields["round"])),
            sender=int(fields["from"]),
            kind=str(fields["kind"])[:KIND_CHARS_MAX],
            serial=int(fields["serial"]),
            answers=fields["answers"] is True,
            seconds=seconds,
            number=int(fields["number"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None
