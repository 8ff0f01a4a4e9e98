"""Loopback ports for VMs: where a replica's peers reach it, known before the VM exists.

A port is free for a program of any VM to bind, so nothing may listen on it here; and nobody else may be given it. It
is therefore taken from below the range the kernel gives out by itself, and claimed towards other emulators on the same
machine by binding the UDP port of the same number, which is no program's and which the kernel releases however this
process ends.
Source of the range: ip(7), ip_local_port_range.
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
    """The same name always gets the same port, until the emulator ends."""

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
        raise RuntimeError("no loopback port is left")


def _ephemeral_min() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_MIN_DEFAULT
