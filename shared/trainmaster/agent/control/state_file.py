"""The agent's state on disk: one small file that survives crashes of the agent and reboots of the
VM.

    first write: ┌ slot 0 ─────────────┬ slot 1 ─────────────┐  in full, so that the disk has given
                 └ number, hash, JSON, zeros ────────────────┘  its blocks before it can be full
    later:       the slot with the lower number is written in place

A write needs no block and no other file, so a full disk does not prevent it. A write that a crash
has cut leaves the other slot, which has the state before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective

SLOT_BYTES = 256 * 1024
"""Size of a slot. The longest state has 70 KiB, 50 of which are the end of a program's output."""
HEADER = struct.Struct("<QI32s")
"""Number of the write, bytes of its JSON, and the SHA-256 hash of both and of the JSON."""


class Slot(NamedTuple):
    """One of the two copies of the state in the file."""

    number: int
    """Number of the write; 0: the slot has none that is complete."""
    content: bytes


EMPTY = Slot(number=0, content=b"")


@dataclass
class StoredState:
    """The contents of the state file.

    An incarnation is one execution of the program. A directive is the order of the control plane:
    to run one, for example, or to hold it until all members of the job are ready for it.
    """

    instance_id: str
    """The VM that wrote it: a disk may outlive its VM."""
    setup_done: bool = False
    """The job's packages are installed."""
    started: IncarnationKey | None = None
    """The last incarnation that was started, or whose setup failed: no incarnation runs twice."""
    closed: bool = True
    """A directive ended that incarnation while it ran, so that its end is no evidence of anything.
    """
    exit: dict[str, Any] | None = None
    """How that incarnation ended, unless it runs or a directive ended it."""
    left_peers: bool = False
    """Whether the program of that incarnation had left its peers when a directive ended it: its
    ranks had exited 0, and its launcher waited for those of other machines
    (`Program.has_left_peers`).
    """
    ready: IncarnationKey | None = None
    """The last incarnation for which Pub/Sub accepted a vm-ready, the agent's report that it could
    start, under `hold`.
    """
    desired: ReceivedDirective | None = None
    """The latest directive."""
    announced: list[str] = field(default_factory=list)
    """Causes of maintenance events that were accepted."""

    @staticmethod
    def load(path: Path, instance_id: str) -> StoredState:
        """Return an empty state if the file is missing, unreadable, or of another VM."""
        try:
            with path.open("rb") as file:
                latest = max(_read_slot(file.fileno(), index) for index in (0, 1))
            stored = json.loads(latest.content)
            if stored["instance_id"] != instance_id:
                return StoredState(instance_id)
            for name in ("started", "ready"):
                if stored.get(name) is not None:
                    stored[name] = IncarnationKey(*stored[name])
            if stored["desired"] is not None:
                stored["desired"] = _read_directive(stored["desired"])
            return StoredState(**stored)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return StoredState(instance_id)

    def save(self, path: Path) -> None:
        """Write the state in place. Raises OSError."""
        content = json.dumps(asdict(self)).encode()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < 2 * SLOT_BYTES:
                os.pwrite(descriptor, bytes(2 * SLOT_BYTES), 0)
                os.fsync(descriptor)
            numbers = [_read_slot(descriptor, index).number for index in (0, 1)]
            slot = _encode(max(numbers) + 1, content)
            os.pwrite(descriptor, slot, SLOT_BYTES * numbers.index(min(numbers)))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _encode(number: int, content: bytes) -> bytes:
    """Return the bytes of a slot. Raises OSError if the slot has no room for them."""
    if HEADER.size + len(content) > SLOT_BYTES:
        raise OSError(f"the state has {len(content)} bytes")
    return HEADER.pack(number, len(content), _hash(number, content)) + content


def _read_slot(descriptor: int, index: int) -> Slot:
    data = os.pread(descriptor, SLOT_BYTES, index * SLOT_BYTES)
    if len(data) < HEADER.size:
        return EMPTY
    number, length, digest = HEADER.unpack_from(data)
    content = data[HEADER.size : HEADER.size + length]
    return Slot(number, content) if digest == _hash(number, content) else EMPTY


def _hash(number: int, content: bytes) -> bytes:
    return hashlib.sha256(str(number).encode() + content).digest()


def _read_directive(stored: Mapping[str, Any]) -> ReceivedDirective:
    """Return the directive with the types that JSON does not keep."""
    fields = {
        **stored,
        "key": IncarnationKey(*stored["key"]),
        "slices": tuple(stored.get("slices", ())),
        "without": tuple(stored.get("without", ())),
    }
    return ReceivedDirective(**fields)
