"""The processes of a stack: their environment, how to find and kill them, and their ports.

Every process of a stack, and every process it starts, carries the stack's id (128 random bits) in
the environment variable `TRAINMASTER_STACK_ID`. Only processes with that id are killed, so a reused
pid is harmless.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import psutil

from trainmaster_emulators.process import vm_container_engine

STACK_ID: Final = "TRAINMASTER_STACK_ID"
KILL_MAX_S: Final = 10.0
"""Longest time for which `kill_stack` repeats its signals."""

# Ports lie below the kernel's range for outgoing connections (32768…): no connection can take the
# port of a function that is being restarted. Source: net.ipv4.ip_local_port_range.
PORTS_FIRST: Final = 15_000
PORTS_END: Final = 32_000
BLOCK_PORTS: Final = 64
"""Ports of one stack."""
BROWSER_BLOCKED_PORTS: Final = (
    6665,
    6666,
    6667,
    6668,
    6669,
    6000,
    4045,
    2049,
    3659,
    6697,
    6566,
    5060,
    5061,
)
"""Ports to which no browser connects.

Source: https://fetch.spec.whatwg.org/#port-blocking. Firestore's, Pub/Sub's and Cloud Storage's
emulators, which do not refuse web pages, listen on them.
"""
BLOCK_NETWORK: Final = "127.84"
"""Each block of ports has its own loopback address in this network, so that each stack has all
blocked ports.
"""
BLOCK_HOSTS: Final = 250
"""Addresses of that network in which the last byte alone differs."""

# Variables that direct clients to a project, an account or another stack. Services do not inherit
# them from the shell.
FOREIGN_PREFIXES: Final = (
    "BOTO_",
    "CLOUDSDK_",
    "GCE_METADATA_",
    "GOOGLE_",
    "TRAINMASTER_",
    "PYTEST_",
)
FOREIGN_SUFFIXES: Final = ("_EMULATOR_HOST",)
LOOPBACK: Final = "127.0.0.1"


def service_environment(
    stack_id: str, base: Mapping[str, str] | None = None, addresses: Iterable[str] = ()
) -> dict[str, str]:
    """Return the shell's environment without foreign variables, with the stack's id.

    The services call `addresses`, `host:port`, without the shell's proxy.
    """
    environment = {
        name: value
        for name, value in (os.environ if base is None else base).items()
        if not name.startswith(FOREIGN_PREFIXES) and not name.endswith(FOREIGN_SUFFIXES)
    }
    environment |= proxy_exceptions(addresses, environment)
    environment[STACK_ID] = stack_id
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def proxy_exceptions(addresses: Iterable[str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which clients call these addresses without a proxy, and what `base`
    contains.
    """
    hosts = base.get("no_proxy", base.get("NO_PROXY", "")).split(",")
    hosts += [LOOPBACK, "localhost", *(address.partition(":")[0] for address in addresses)]
    value = ",".join(dict.fromkeys(filter(None, hosts)))
    return {"no_proxy": value, "NO_PROXY": value}


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def started_at(pid: int) -> float | None:
    """Return when this process started, in seconds since the epoch; None if it has ended (a zombie
    has).
    """
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_alive(pid: int, since: float) -> bool:
    """Return whether the process that started at `since` with this pid is still running."""
    now = started_at(pid)
    return now is not None and abs(now - since) < 1.0


def list_processes(stack_id: str) -> list[psutil.Process]:
    """Return all processes of that stack except the caller."""
    return [process for process in with_variable(STACK_ID, stack_id) if process.pid != os.getpid()]


def with_variable(name: str, value: str) -> Iterator[psutil.Process]:
    """Yield the processes whose environment has this variable.

    Those of other users are left out.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(name) == value:
                yield process


def kill_stack(stack_id: str) -> int:
    """Kill the stack's processes until none is left, and remove its containers.

    Return how many were killed.

    Killing repeats because a process may start another one meanwhile. Containers carry the stack's
    id as a label.
    """
    killed: set[int] = set()
    end = time.monotonic() + KILL_MAX_S
    while (left := list_processes(stack_id)) and time.monotonic() < end:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.add(process.pid)
        psutil.wait_procs(left, timeout=0.5)
    vm_container_engine.remove_containers(f"{STACK_ID}={stack_id}")
    return len(killed)


def kill_group(leader: int, signal_number: int) -> None:
    """Signal the process group of a service. The group may outlive its leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal_number)


class Ports:
    """Free loopback ports for one stack, from a block that no other stack uses while this object
    exists.

    An abstract Unix socket reserves the block. The kernel releases it when the process ends for any
    reason.
    """

    def __init__(self) -> None:
        blocks = list(enumerate(range(PORTS_FIRST, PORTS_END - BLOCK_PORTS, BLOCK_PORTS)))
        random.shuffle(blocks)
        for number, first in blocks:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f"\0trainmaster-ports-{first}")
            except OSError:
                claim.close()
                continue
            self._claim = claim
            self._candidates = self._free_ports(host="", ports=range(first, first + BLOCK_PORTS))
            self._blocked_host = (
                f"{BLOCK_NETWORK}.{number // BLOCK_HOSTS}.{number % BLOCK_HOSTS + 1}"
            )
            self._blocked_candidates = self._free_ports(self._blocked_host, BROWSER_BLOCKED_PORTS)
            return
        raise RuntimeError(
            f"all blocks of ports between {PORTS_FIRST} and {PORTS_END} are in use by other stacks"
        )

    def take(self) -> int:
        """Return the next port on which nothing listens."""
        try:
            return next(self._candidates)
        except StopIteration:
            raise RuntimeError(
                f"the stack needs more than the {BLOCK_PORTS} ports of its block"
            ) from None

    def take_address(self) -> str:
        """Return `host:port` with the next port on which nothing listens."""
        return f"{LOOPBACK}:{self.take()}"

    def take_blocked_addresses(self, count: int) -> list[str]:
        """Return `host:port` of addresses to which no browser connects, and on which nothing
        listens.
        """
        ports = list(itertools.islice(self._blocked_candidates, count))
        if len(ports) < count:
            raise RuntimeError(
                f"too few ports that browsers block are free on {self._blocked_host}"
            )
        return [f"{self._blocked_host}:{port}" for port in ports]

    def close(self) -> None:
        self._claim.close()

    @staticmethod
    def _free_ports(host: str, ports: Iterable[int]) -> Iterator[int]:
        for port in ports:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError:
                    continue
            yield port
