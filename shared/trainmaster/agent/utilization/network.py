"""Bytes that this machine has sent and received, from the kernel's counters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "lo"


@dataclass(frozen=True)
class Traffic:
    """Bytes since the machine started."""

    received: int
    sent: int


def read_traffic(root: Path = Path("/")) -> Traffic:
    """Return the traffic of the machine's network cards. Raises OSError, ValueError or IndexError.

    A VM also has virtual interfaces, such as the bridge of its container engine, through which the
    same bytes pass again. A container has virtual interfaces only.
    """
    lines = (root / "proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    counters = {
        name.strip(): values.split() for name, _, values in (line.partition(":") for line in lines)
    }
    counters.pop(LOOPBACK, None)
    cards = {name for name in counters if (root / "sys/class/net" / name / "device").exists()}
    chosen = [values for name, values in counters.items() if name in cards or not cards]
    return Traffic(
        sum(int(values[0]) for values in chosen), sum(int(values[8]) for values in chosen)
    )
