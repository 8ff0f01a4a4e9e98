"""Bytes that this machine has sent and received, from the kernel's counters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "lo"
# Of /proc/net/dev. Source: proc_net(5).
HEADER_LINES = 2
RECEIVED_BYTES = 0  # positions of the counters in a line
SENT_BYTES = 8


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
    lines = (root / "proc/net/dev").read_text(encoding="ascii").splitlines()[HEADER_LINES:]
    by_interface = {}
    for line in lines:
        name, _, counters = line.partition(":")
        by_interface[name.strip()] = counters.split()
    by_interface.pop(LOOPBACK, None)
    devices = root / "sys/class/net"
    cards = [name for name in by_interface if (devices / name / "device").exists()]
    counted = [by_interface[name] for name in cards or by_interface]
    return Traffic(
        received=sum(int(counters[RECEIVED_BYTES]) for counters in counted),
        sent=sum(int(counters[SENT_BYTES]) for counters in counted),
    )
