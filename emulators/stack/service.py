"""One process of the stack: how it is started, when it is ready, how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from emulators.stack import exec_with_parent, processes
from emulators.stack.loopback import answers
from emulators.stack.state import StackError

PROBE_S: Final = 1.0
POLL_S: Final = 0.05
STOP_S: Final = 5.0
TAIL_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Service:
    """What to run. `health`: a path that answers, with any status, once it serves; None: it accepts connections."""

    name: str
    argv: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    health: str | None = "/"
    restartable: bool = False  # false where a restart would silently lose state
    stop_first: bool = False  # it starts processes that need the others to end in order

    @property
    def address(self) -> str:
        return f"{processes.LOOPBACK}:{self.port}" if self.port else ""


class Running:
    """A started service, leader of a session of its own.

    Start it from the main thread: the kernel's parent-death signal belongs to the thread that forked.
    """

    def __init__(self, service: Service, environment: Mapping[str, str], log: Path) -> None:
        self.service = service
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                exec_with_parent.command(service.argv),
                env={**environment, **service.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.started_at = processes.started_at(self.pid) or time.time()

    def exit_status(self) -> int | None:
        """As Popen has it: negative for a signal; None while it runs."""
        return self._process.poll()

    def is_ready(self) -> bool:
        """Whether it serves. Raises StackError, with the end of its log, if it has ended instead."""
        if (status := self.exit_status()) is not None:
            raise StackError(f"{self.service.name} ended with {describe(status)} while starting:\n{self.log_tail()}")
        port, health = self.service.port, self.service.health
        return port is None or (
            _accepts(port) if health is None else answers(self.service.address, health, timeout_s=PROBE_S)
        )

    def terminate(self) -> None:
        processes.kill_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the whole group at once: a worker of a killed master would keep the port."""
        processes.kill_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, deadline: float) -> bool:
        """Whether it ended before that moment of the monotonic clock."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def log_tail(self) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()


def describe(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def wait_ready(running: list[Running], within_s: float, *, give_up: Callable[[], bool] = lambda: False) -> None:
    """Until all serve, or `give_up`. Raises StackError for those not ready in time, or the first that ended."""
    deadline = time.monotonic() + within_s
    waiting = list(running)
    while (waiting := [each for each in waiting if not each.is_ready()]) and not give_up():
        if time.monotonic() > deadline:
            names = ", ".join(each.service.name for each in waiting)
            raise StackError(f"not ready after {within_s:g} s: {names} (their logs: {waiting[0].log.parent})")
        time.sleep(POLL_S)


def stop(running: list[Running]) -> None:
    """Ask all, give them a common while, kill the rest. Those that stop first (VMs) still find the others alive."""
    for wave in (
        [each for each in running if each.service.stop_first],
        [each for each in running if not each.service.stop_first],
    ):
        for each in wave:
            each.terminate()
        deadline = time.monotonic() + STOP_S
        for each in wave:
            each.wait(deadline)
            each.kill()


@contextmanager
def alone(service: Service, log: Path, *, within_s: float = 30.0) -> Iterator[Service]:
    """One service without a stack, for the length of the block."""
    running = Running(service, processes.service_environment("alone"), log)
    try:
        wait_ready([running], within_s)
        yield service
    finally:
        stop([running])


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((processes.LOOPBACK, port), PROBE_S).close()
    except OSError:
        return False
    return True
