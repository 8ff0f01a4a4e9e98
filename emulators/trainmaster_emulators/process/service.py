"""One service of the stack: its command and its process, from the start until it has ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from trainmaster_emulators.process import exec_with_parent, forked_module, processes
from trainmaster_emulators.process.loopback import responds
from trainmaster_emulators.process.state import StackError

PROBE_S: Final = 1.0
"""Longest wait for an answer to the question whether a service is ready."""
POLL_S: Final = 0.05
"""Time between two such questions."""
STOP_S: Final = 5.0
"""Longest time from SIGTERM to the end of the services."""
TAIL_BYTES: Final = 2_000
"""Bytes of a log that an error quotes."""
BACKLOG: Final = 128
"""Calls that wait in a socket. Each of Pub/Sub's subscriptions has two at a time."""


@dataclass(frozen=True, slots=True)
class Service:
    """A program that the supervisor runs, and how it treats the program."""

    name: str
    argv: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the stack's common environment."""
    address: str = ""
    """`host:port` it listens on; empty: it listens on none and counts as ready at once."""
    health: str | None = "/"
    """A path that responds, with any status, as soon as the service is ready; None: accepting
    connections is enough.
    """
    restartable: bool = False
    """False where a restart would silently lose state."""
    stop_first: bool = False
    """True where the service starts processes that need the other services while they shut down."""
    keeps_socket: bool = False
    """True where the service takes its socket by the option `--fd`.

    Calls wait in it while the service starts again.
    """


class Running:
    """A started service and its process, which leads its own session.

    Create it on the main thread: the kernel sends the parent-death signal when the thread that
    forked ends. `forks`: a service that keeps its socket is a fork of this process, which must have
    no other thread.
    """

    def __init__(
        self, service: Service, environment: Mapping[str, str], log: Path, *, forks: bool = False
    ) -> None:
        self.service = service
        self.log = log
        self._environment = {**environment, **service.environment}
        self._forks = forks
        self._socket = (
            socket.create_server(processes.split_address(service.address), backlog=BACKLOG)
            if service.keeps_socket
            else None
        )
        self.start()

    def start(self) -> None:
        """Start the process, also when an earlier one has ended."""
        argv = list(self.service.argv)
        kept: list[int] = []
        fork: Callable[[], object] | None = None
        if self._socket is not None:
            kept = [self._socket.fileno()]
            argv.append(f"--fd={kept[0]}")
            if self._forks:
                # Popen calls it in the child, where it runs the module and never returns.
                fork = partial(forked_module.run, argv, self._environment, kept[0], os.getpid())
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                exec_with_parent.command(argv),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=kept,
                preexec_fn=fork,  # noqa: PLW1509 - this process has no other thread
            )
        self.pid = self._process.pid
        self.started_at = processes.started_at(self.pid) or time.time()

    def exit_status(self) -> int | None:
        """Return Popen's status: negative for a signal, None while the process runs."""
        return self._process.poll()

    def close(self) -> None:
        """Release the socket. Call it after the process has ended."""
        if self._socket is not None:
            self._socket.close()

    def is_ready(self) -> bool:
        """Return whether the service responds.

        Raises StackError with the end of its log if the process has ended.
        """
        status = self.exit_status()
        if status is not None:
            raise StackError(
                f"{self.service.name} ended with {describe_exit(status)} while"
                f" starting:\n{self.log_tail()}"
            )
        address = self.service.address
        health = self.service.health
        if not address:
            return True
        if health is None:
            return _accepts(address)
        return responds(address, health, timeout_s=PROBE_S)

    def terminate(self) -> None:
        processes.kill_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the whole process group and wait: a worker that survives its master would keep the
        port.
        """
        processes.kill_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic clock) and return whether the process has ended."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def log_tail(self) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()


def describe_exit(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def wait_ready(
    running: list[Running], within_s: float, *, give_up: Callable[[], bool] = lambda: False
) -> None:
    """Wait until all services are ready or `give_up` returns True.

    Raises StackError for services that are not ready in time, and as soon as one of them ends.
    """
    deadline = time.monotonic() + within_s
    waiting = running
    while True:
        waiting = [process for process in waiting if not process.is_ready()]
        if not waiting or give_up():
            return
        if time.monotonic() > deadline:
            names = ", ".join(process.service.name for process in waiting)
            raise StackError(
                f"not ready after {within_s:g} s: {names} (see their logs in"
                f" {waiting[0].log.parent})"
            )
        time.sleep(POLL_S)


def stop(running: list[Running]) -> None:
    """Terminate the services, and kill those that do not end within STOP_S.

    Services with `stop_first` end first. Restartable ones, of which functions end slowly, lose
    nothing and are killed.
    """
    first = [process for process in running if process.service.stop_first]
    others = [process for process in running if not process.service.stop_first]
    for group in (first, others):
        for process in group:
            if process.service.restartable:
                process.kill()
            else:
                process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in group:
            process.wait(deadline)
            process.kill()
            process.close()


@contextmanager
def run_alone(service: Service, log: Path, *, within_s: float = 180.0) -> Iterator[Service]:
    """Run one service without a stack, for the length of the block."""
    running = Running(
        service, processes.service_environment("alone", addresses=[service.address]), log
    )
    try:
        wait_ready([running], within_s)
        yield service
    finally:
        stop([running])


def _accepts(address: str) -> bool:
    try:
        socket.create_connection(processes.split_address(address), PROBE_S).close()
    except OSError:
        return False
    return True
