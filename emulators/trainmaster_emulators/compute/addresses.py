"""Loopback ports of replicas: the addresses at which peers reach a replica and its agent, known
before its VM exists.

A replica's program gets a TCP port, and its agent a UDP port. The VM's processes must be able to
bind them, so this process does not. Two rules keep each port free: it lies below the kernel's range
for automatic ports, and this process reserves it towards other emulators on the machine by binding
the port of the same number of the *other* protocol, which nothing uses. The kernel releases that
port when this process ends for any reason. Source of the range: ip(7), ip_local_port_range.
"""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path
from typing import Final

PORT_MIN: Final = 10_000
"""The lowest port that is assigned."""
EPHEMERAL_MIN_DEFAULT: Final = 32_768
"""First port of the kernel's range for automatic ports, if the kernel does not tell it."""


class AddressBook:
    """Assigns one port of each protocol to each name, for as long as the emulator runs."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._ports: dict[tuple[str, socket.SocketKind], int] = {}
        self._claims: list[socket.socket] = []
        self._candidates = list(range(PORT_MIN, _ephemeral_min()))
        random.shuffle(self._candidates)

    def address(self, name: str) -> str:
        """Return the address of the program."""
        return self._address(name, socket.SOCK_STREAM)

    def channel_address(self, name: str) -> str:
        """Return the address of the agent's peer channel."""
        return self._address(name, socket.SOCK_DGRAM)

    def _address(self, name: str, protocol: socket.SocketKind) -> str:
        with self._lock:
            if (name, protocol) not in self._ports:
                self._ports[name, protocol] = self._claim(protocol)
            return f"{self._host}:{self._ports[name, protocol]}"

    def _claim(self, protocol: socket.SocketKind) -> int:
        """Return a free port of this protocol, after reserving it by the other protocol.

        Raises RuntimeError if no port is free.
        """
        is_tcp = protocol is socket.SOCK_STREAM
        while self._candidates:
            port = self._candidates.pop()
            claim = socket.socket(type=socket.SOCK_DGRAM if is_tcp else socket.SOCK_STREAM)
            try:
                claim.bind((self._host, port))
                with socket.socket(type=protocol) as probe:
                    probe.bind(("", port))  # training programs listen on all addresses
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            return port
        raise RuntimeError("all loopback ports for replicas are in use")


def _ephemeral_min() -> int:
    """Return the first port of the kernel's range for automatic ports."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_MIN_DEFAULT
