"""Which accelerators this machine has, by the files of their drivers."""

from __future__ import annotations

from pathlib import Path

_DEVICES = Path("/dev")


def has_gpu() -> bool:
    return any(_DEVICES.glob("nvidia[0-9]*"))


def has_tpu() -> bool:
    return any(_DEVICES.glob("accel[0-9]*")) or any((_DEVICES / "vfio").glob("[0-9]*"))
