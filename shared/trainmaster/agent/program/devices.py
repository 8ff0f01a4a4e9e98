"""The accelerators of this machine: which ones its drivers serve, and whether a GPU has no driver;
and running the tools that show more.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_DEVICES = Path("/dev")
_DRIVEN_GPUS = Path("/proc/driver/nvidia/gpus")
"""One folder for each GPU that the driver serves.

The files in /dev may only appear when a program uses the GPU.
"""
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
# How the PCI classes of GPUs begin, with and without a screen. Source: the PCI ID list.
_DISPLAY_CLASS = "0x03"
_TOOL_S = 10
"""Timeout of a tool, such as nvidia-smi, in seconds."""


def has_gpu() -> bool:
    """Return whether a driver serves a GPU."""
    return any(_DEVICES.glob("nvidia[0-9]*")) or any(_DRIVEN_GPUS.glob("*"))


def gpu_count() -> int:
    """Return the number of GPUs that the driver serves."""
    return len(list(_DRIVEN_GPUS.glob("*")))


def driver_version() -> str | None:
    """Return the version of the loaded NVIDIA driver, such as `580.159.03`; None if
    there is none.
    """
    try:
        text = _DRIVER_VERSION.read_text()
    except OSError:
        return None
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return match.group(1) if match else None


def lacks_gpu_driver() -> bool:
    """Return whether this machine has an NVIDIA GPU that no driver serves."""
    return not has_gpu() and any(_is_nvidia_gpu(device) for device in _PCI_DEVICES.glob("*"))


def _is_nvidia_gpu(device: Path) -> bool:
    try:
        vendor, device_class = ((device / name).read_text() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor.strip() == _NVIDIA and device_class.startswith(_DISPLAY_CLASS)


def has_tpu() -> bool:
    """Return whether this machine is a TPU VM: a host of a TPU node."""
    return any(_DEVICES.glob("accel[0-9]*")) or any((_DEVICES / "vfio").glob("[0-9]*"))


def tool_output(command: list[str]) -> str:
    """Return what a short program prints.

    Raises OSError or SubprocessError, also if it fails or takes `_TOOL_S`.
    """
    return subprocess.check_output(
        command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TOOL_S,
        encoding="utf-8",
        errors="replace",
    )
