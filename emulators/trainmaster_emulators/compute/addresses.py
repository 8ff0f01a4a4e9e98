"""Loopback ports of replicas: the address at which peers reach a replica, known before its VM exists.

The VM's program must be able to bind the port, so this process does not listen on it. Two rules keep it free: it lies
below the kernel's range for automatic ports, and this process reserves it towards other emulators on the machine by
binding the UDP port of the same number, which programs do not use. The kernel releases the UDP port when this process
ends for any reason. Source of the range: ip(7), ip_local_port_range.
"""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path
from typing import Final

PORT_MIN: Final = 10_000
EPHEMERAL_MIN_DEFAULT: Final = 32_768


class AddressBook:
    """Assigns one port to each name, for as long as the emulator runs."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._ports: dict[str, int] = {}
        self._claims: list[socket.socket] = []
        self._candidates = list(range(PORT_MIN, _ephemeral_min()))
        random.shuffle(self._candidates)

    def address(self, name: str) -> str:
        with self._lock:
            if name not in self._ports:
                self._ports[name] = self._claim()
            return f"{self._host}:{self._ports[name]}"

    def _claim(self) -> int:
        while self._candidates:
            port = self._candidates.pop()
            claim = socket.socket(type=socket.SOCK_DGRAM)
            try:
                claim.bind((self._host, port))
                with socket.socket() as probe:
                    probe.bind(("", port))  # training programs listen on all addresses
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            return port
        raise RuntimeError("all loopback ports for replicas are in use")


def _ephemeral_min() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_MIN_DEFAULT
