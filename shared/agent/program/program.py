"""A child process: started, ended, waited for, its output forwarded."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.agent.program.output import Tail, whole_lines
from shared.agent.program.process_table import MARK, kill_marked, oom_kills, out_of_memory
from shared.agent.program.tracebacks import parse_traceback
from shared.agent.reporting.serial_console import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import IO

    from shared.agent.control.workspace import Place
    from shared.agent.reporting.trial_metric import Measurement

TAIL_CHARS = 4096
TRACEBACK_BYTES = 64 * 1024  # of each stream, kept to find the traceback in: TensorFlow's are tens of kilobytes long


@dataclass(frozen=True)
class Ended:
    """How a program, or a incarnation, ended: exactly one of exit_status and signal where the cause is the process."""

    exit_status: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    error: Mapping[str, str] | None = None
    tail: str = ""
    cause: str = "process"  # as in replica-exit
    measurement: Measurement | None = None  # of a trial: what it last reported

    @property
    def how(self) -> str:
        return f"exit status {self.exit_status}" if self.signal is None else f"signal {self.signal}"

    def told_of(self, command: Sequence[str]) -> str:
        """A failure in the words of Python's own `subprocess`, which were the service's."""
        returncode = -self.signal if self.signal is not None else self.exit_status or 0
        return str(subprocess.CalledProcessError(returncode, list(command)))


class Program:
    """A child process in a session of its own, its output forwarded line by line. Starts when constructed (OSError)."""

    def __init__(self, argv: Sequence[str], place: Place, *, env: Mapping[str, str], cwd: Path) -> None:
        self._work = place.work
        self._console = place.console
        self._oom_before = oom_kills()
        self._tail = Tail(4 * TAIL_CHARS)  # a character takes up to four bytes
        self._lock = threading.Lock()
        self._reaped = False
        self._killer: threading.Timer | None = None
        self._process = subprocess.Popen(
            list(argv),
            env={**env, "PYTHONUNBUFFERED": "1", MARK: str(place.work)},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._streams: list[tuple[threading.Thread, Tail]] = []
        for name, stream in ((Stream.STDERR, self._process.stderr), (Stream.STDOUT, self._process.stdout)):
            assert stream is not None  # noqa: S101 - both are pipes
            tail = Tail(TRACEBACK_BYTES)
            pump = threading.Thread(target=self._pump, args=(name, stream, tail), daemon=True)
            self._streams.append((pump, tail))
            pump.start()

    def notify(self, number: signal.Signals) -> None:
        """To the program alone: what it started may not expect it."""
        with self._lock:
            if not self._reaped:
                os.kill(self._process.pid, number)

    def end(self, grace_s: float) -> None:
        """SIGTERM to the whole group, SIGKILL after the grace. Returns at once; may be repeated."""
        with self._lock:
            if self._reaped or self._killer is not None:
                return
            self._signal_all(signal.SIGTERM)
            self._killer = threading.Timer(grace_s, self.kill)
            self._killer.daemon = True
            self._killer.start()

    def kill(self) -> None:
        with self._lock:
            if not self._reaped:
                self._signal_all(signal.SIGKILL)

    def wait(self) -> Ended:
        """Waits for the end of the program and of everything it started."""
        # Not reaped yet, so that its process group still is its own and can be cleaned safely.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._signal_all(signal.SIGKILL)
            self._reaped = True
            returncode = self._process.wait()
            if self._killer is not None:
                self._killer.cancel()
        kill_marked(self._work)
        oom = out_of_memory(returncode, self._oom_before, oom_kills())
        for pump, _ in self._streams:
            pump.join(5.0)
        errors = [parse_traceback(tail.text()) for _, tail in self._streams] if returncode else []
        return Ended(
            exit_status=returncode if returncode >= 0 else None,
            signal=-returncode if returncode < 0 else None,
            out_of_memory=oom,
            error=next((error for error in errors if error), None),
            tail=self._tail.text()[-TAIL_CHARS:],
        )

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _pump(self, name: Stream, stream: IO[bytes], tail: Tail) -> None:
        with stream:
            for lines in whole_lines(functools.partial(os.read, stream.fileno(), 1 << 16)):
                tail.add(lines)
                self._tail.add(lines)
                self._console.write(name, lines)
