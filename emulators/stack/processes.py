"""Processes of a stack: recognising them, ending them, and the ports they listen on.

Every process of a stack carries its stack's id, 128 random bits, in the environment variable `TRAINMASTER_STACK_ID`,
and so does whatever it starts. A process with that id is ours by construction: no other can be hit, even when pids are
reused.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Final

import psutil

from emulators.compute import vm_container_engine

STACK_ID: Final = "TRAINMASTER_STACK_ID"

# Below the range the kernel takes outgoing ports from (32768…), so that the port of a function that is being restarted
# is not taken by somebody's connection meanwhile. Source: net.ipv4.ip_local_port_range.
PORTS_FIRST: Final = 15_000
PORTS_END: Final = 32_000
BLOCK_PORTS: Final = 32

# What points clients at a project, an account or another stack must not leak in from the shell `up` is typed into.
FOREIGN_PREFIXES: Final = ("BOTO_", "CLOUDSDK_", "GCE_METADATA_", "GOOGLE_", "TRAINMASTER_", "PYTEST_")
FOREIGN_SUFFIXES: Final = ("_EMULATOR_HOST",)
LOOPBACK: Final = "127.0.0.1"


def service_environment(stack_id: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The shell's environment without what would lead out of the stack, and with its id."""
    environment = {
        name: value
        for name, value in (os.environ if base is None else base).items()
        if not name.startswith(FOREIGN_PREFIXES) and not name.endswith(FOREIGN_SUFFIXES)
    }
    no_proxy = [
        *filter(None, environment.get("no_proxy", environment.get("NO_PROXY", "")).split(",")),
        LOOPBACK,
        "localhost",
    ]
    environment["no_proxy"] = environment["NO_PROXY"] = ",".join(dict.fromkeys(no_proxy))
    environment[STACK_ID] = stack_id
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def started_at(pid: int) -> float | None:
    """When this process started (seconds since the epoch); None if there is none, or only its remains."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_alive(pid: int, since: float) -> bool:
    """Whether the process that had this pid at that time is the one that has it now."""
    now = started_at(pid)
    return now is not None and abs(now - since) < 1.0


def of_stack(stack_id: str) -> list[psutil.Process]:
    """All processes of that stack but the caller."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _carries(process, stack_id)]


def _carries(process: psutil.Process, stack_id: str) -> bool:
    try:
        return process.environ().get(STACK_ID) == stack_id
    except (psutil.Error, OSError):
        return False  # another user's, or gone


def kill_stack(stack_id: str, *, deadline_s: float = 10.0) -> int:
    """Kill every process of that stack until none is left: some may be starting others. How many died.

    Its containers, which are processes of the engine's, carry the id as a label; they go with it.
    """
    killed: set[int] = set()
    end = time.monotonic() + deadline_s
    while (left := of_stack(stack_id)) and time.monotonic() < end:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.add(process.pid)
        psutil.wait_procs(left, timeout=0.5)
    vm_container_engine.remove(f"{STACK_ID}={stack_id}")
    return len(killed)


def kill_group(leader: int, signal_number: int) -> None:
    """Signal the process group of a service; its leader may be gone already while others of the group are not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal_number)


class Ports:
    """Free loopback ports for one stack, from a block no other stack uses while this object incarnations.

    The claim is an abstract Unix socket: the kernel gives it back when the process ends, however it ends.
    """

    def __init__(self) -> None:
        blocks = list(range(PORTS_FIRST, PORTS_END - BLOCK_PORTS, BLOCK_PORTS))
        random.shuffle(blocks)
        for first in blocks:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f"\0trainmaster-ports-{first}")
            except OSError:
                claim.close()
                continue
            self._claim = claim
            self._candidates = self._free(first)
            return
        raise RuntimeError(f"every block of ports between {PORTS_FIRST} and {PORTS_END} is claimed")

    def take(self) -> int:
        """The next port nobody listens on."""
        try:
            return next(self._candidates)
        except StopIteration:
            raise RuntimeError("the stack's block of ports is used up") from None

    def close(self) -> None:
        self._claim.close()

    @staticmethod
    def _free(first: int) -> Iterator[int]:
        for port in range(first, first + BLOCK_PORTS):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("", port))
                except OSError:
                    continue
            yield port
