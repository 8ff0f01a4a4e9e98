"""When and how programs are asked to save a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckpointSignal(StrEnum):
    """The signal that asks a program to save a checkpoint before its VM is deleted."""

    SIGTERM = "SIGTERM"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"
    SIGINT = "SIGINT"


class SaveOnNotice(StrEnum):
    """Which programs are asked to save when the end of a VM is announced."""

    GANG = "gang"  # those of all members of a synchronous job
    REPLICA = "replica"  # only the one on that VM
    OFF = "off"  # none


@dataclass(frozen=True, slots=True)
class SavePolicy:
    """How the programs of a job are asked to save."""

    signal: CheckpointSignal = CheckpointSignal.SIGTERM
    on_notice: SaveOnNotice = SaveOnNotice.REPLICA
    """`gang`: the programs of all members of a synchronous job save at one moment."""
