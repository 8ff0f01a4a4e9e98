"""Which accelerators this machine has, by the files of their drivers, and a GPU that no driver has taken."""

from __future__ import annotations

from pathlib import Path

_DEVICES = Path("/dev")
_TAKEN = Path("/proc/driver/nvidia/gpus")
"""By the driver, one folder a GPU; the files in /dev may come with the first program that asks for them."""
_BUS = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # how the classes of GPUs begin, with and without a screen. Source: the PCI ID list


def has_gpu() -> bool:
    return any(_DEVICES.glob("nvidia[0-9]*")) or any(_TAKEN.glob("*"))


def lacks_driver() -> bool:
    return not has_gpu() and any(_is_gpu(device) for device in _BUS.glob("*"))


def _is_gpu(device: Path) -> bool:
    try:
        maker, kind = ((device / name).read_text() for name in ("vendor", "class"))
    except OSError:
        return False
    return maker.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def has_tpu() -> bool:
    return any(_DEVICES.glob("accel[0-9]*")) or any((_DEVICES / "vfio").glob("[0-9]*"))
