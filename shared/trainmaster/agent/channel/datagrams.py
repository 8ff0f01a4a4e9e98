"""The datagrams of the peer channel: what one agent tells another, and the proof that an agent of
the job wrote it.

    "TM1" · HMAC-SHA256 of the rest, 32 bytes · JSON {"job", "attempt", "round", "from", "kind",
    "serial", …}

The key is the job's own, so agents of other jobs cannot make a valid datagram. docs/interfaces.md,
section 3.
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
BYTES_MAX = 1024
KIND_CHARS_MAX = 32
SECONDS_MAX = 1e9


@dataclass(frozen=True)
class Datagram:
    """One message of one member of the gang to another."""

    key: IncarnationKey
    """Attempt and round that it is about."""
    sender: int
    """The sender's number among the members."""
    kind: str
    serial: int = 0
    """Counts what the sender asked in this round."""
    answers: bool = False
    """Whether it answers a datagram of this kind."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Times by name, counted from when it was sent: clocks of two VMs may differ."""


def encode(datagram: Datagram, job_id: str, secret: bytes) -> bytes:
    body = {
        "job": job_id,
        "attempt": datagram.key.attempt,
        "round": datagram.key.incarnation,
        "from": datagram.sender,
        "kind": datagram.kind,
        "serial": datagram.serial,
        "answers": datagram.answers,
        "seconds": dict(datagram.seconds),
    }
    data = json.dumps(body, separators=(",", ":")).encode()
    return MAGIC + hmac.digest(secret, data, "sha256") + data


def decode(data: bytes, job_id: str, secret: bytes) -> Datagram | None:
    """Return the datagram; None if no agent of this job wrote it, whatever else is
    wrong with it.
    """
    start = len(MAGIC) + DIGEST_BYTES
    if not start < len(data) <= BYTES_MAX or not data.startswith(MAGIC):
        return None
    body = data[start:]
    if not hmac.compare_digest(data[len(MAGIC) : start], hmac.digest(secret, body, "sha256")):
        return None
    try:
        fields = json.loads(body)
        seconds = {str(name): float(value) for name, value in fields["seconds"].items()}
        if fields["job"] != job_id or not all(
            abs(value) <= SECONDS_MAX for value in seconds.values()
        ):
            return None
        key = IncarnationKey(int(fields["attempt"]), int(fields["round"]))
        kind = str(fields["kind"])[:KIND_CHARS_MAX]
        sender, serial = int(fields["from"]), int(fields["serial"])
        return Datagram(key, sender, kind, serial, fields["answers"] is True, seconds)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None
