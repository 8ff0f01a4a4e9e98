"""The user's program as a child process: start it, forward its output, signal it, and wait for its
end.

`control/launcher.py` starts it; `container_program.py` has the variant for containers. Everything
that the agent starts has the variable `MARK` in its environment, by which the processes that the
program has left behind are found.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from trainmaster.agent.model.results import STDERR_LINE_CHARS, TAIL_CHARS, ProgramExit
from trainmaster.agent.program.family import survivors
from trainmaster.agent.program.output import Tail, whole_lines
from trainmaster.agent.program.process_table import (
    MARK,
    descendants,
    has_oom_kill,
    is_running,
    kill_all,
    out_of_memory,
    read_oom_kill_counts,
    read_stats,
)
from trainmaster.agent.program.signal_receivers import (
    find_catchers,
    find_receivers,
    waits_without_ranks,
)
from trainmaster.agent.program.stacks import find_stacks, without_modules
from trainmaster.agent.program.tracebacks import (
    LAUNCHED,
    find_unreported_error,
    parse_traceback,
)
from trainmaster.agent.reporting.serial_console import Stream
from trainmaster.agent.workspace import Workspace
from trainmaster.program_errors.last_words import last_words

TRACEBACK_BYTES = 64 * 1024
"""Bytes of the end of each stream that are kept, to find the traceback in them: TensorFlow's
tracebacks are tens of kilobytes long.
"""
PUMP_JOIN_S = 5.0
"""Time for output that is still in the pipes when the program has ended."""
OUT_OF_MEMORY = {
    "type": "OutOfMemory",
    "message": "the VM ran out of memory, and the kernel killed a process",
    "own_frame": "",
}
"""The error of a program that hangs, and from which the kernel may have taken a process."""
_RANK_FAILED = re.compile(r"failed \(exitcode: ")
"""Source: torch/distributed/elastic/multiprocessing/api.py."""
SAVE_MAX_S = 90.0
"""How long a program that was asked to save may save before SIGTERM is sent to it again.

It is longer than the notice of a preemption (30 s) or of maintenance (60 s): the shutdown that was
announced must not interrupt the save.
"""


class Program:
    """A child process in its own session, its output forwarded line by line.

    May be used from any thread.
    """

    def __init__(
        self,
        argv: Sequence[str],
        workspace: Workspace,
        *,
        env: Mapping[str, str],
        cwd: Path,
        package: str = "",
    ) -> None:
        """Start the process.

        `package`: the program's top-level Python package, by which its frames are told from those
        of libraries; empty: it has none.

        Raises OSError or ValueError if the process cannot be started.
        """
        self._package = package
        self._started = time.monotonic()
        self._workspace = workspace
        self._console = workspace.console
        self._oom_before = read_oom_kill_counts()
        self._tail = Tail(4 * TAIL_CHARS)  # a character takes up to four bytes
        self.printed_at = time.monotonic()
        """When the program last printed anything, by the monotonic clock; its start, if it has
        printed nothing.
        """
        self._lock = threading.Lock()
        self._reaped = False
        self._killer: threading.Timer | None = None
        self._asked: list[int] = []
        """The processes that `ask` signalled last."""
        self._asked_at = -math.inf
        self.killed_at: float | None = None
        """When SIGKILL was sent because SIGTERM had not ended the program, by the monotonic clock.
        """

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                list(argv),
                env={**env, "PYTHONUNBUFFERED": "1", MARK: str(workspace.work)},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

        family = workspace.family
        self._process = start() if family is None else family.start(start)
        self._streams: list[tuple[threading.Thread, Tail]] = []
        for name, stream in (
            (Stream.STDERR, self._process.stderr),
            (Stream.STDOUT, self._process.stdout),
        ):
            assert stream is not None  # noqa: S101 - both are pipes
            tail = Tail(TRACEBACK_BYTES)
            pump = threading.Thread(target=self._pump, args=(name, stream, tail), daemon=True)
            self._streams.append((pump, tail))
            pump.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stacks(self) -> str:
        """Return the stacks that the program's processes printed before they were ended; empty if
        there are none.
        """
        for _, tail in self._streams:
            stacks = find_stacks(tail.text())
            if stacks:
                return stacks
        return ""

    def error_before_stacks(self) -> dict[str, Any] | None:
        """Return why the program may have hung: the error of its own code that it printed last
        before it was ended, or else that a process was killed for lack of memory. A parent may wait
        for such a child without an end, as `multiprocessing.Pool` does.
        """
        texts = [tail.text() for _, tail in self._streams]
        before = [text[: len(text) - len(find_stacks(text))] for text in texts]
        errors = (find_unreported_error(text, self._package) for text in before)
        printed = next(filter(None, errors), None)
        if printed is None and has_oom_kill(self._oom_before, read_oom_kill_counts()):
            return dict(OUT_OF_MEMORY)
        return printed

    def last_lines(self) -> str:
        """Return the end of the output, in whole lines."""
        return self._tail.whole_lines()

    @property
    def is_alive(self) -> bool:
        with self._lock:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return not self._reaped and os.waitid(os.P_PID, self._process.pid, options) is None

    @property
    def is_ending(self) -> bool:
        """Whether `end` was called while the program ran."""
        return self._killer is not None

    def roots(self) -> set[int]:
        """Return the process that runs the job's command; empty: it is not known, or has ended.

        All other processes of the program descend from it.
        """
        return {self._process.pid}

    def processes(self) -> list[int]:
        """Return all processes of the program, each before its children; empty: they are not known.

        May be called from any thread.
        """
        return descendants({*self.roots(), *self._survivors()}, read_stats())

    def has_left_peers(self) -> bool:
        """Return whether it is a launcher whose ranks have exited 0, and which waits for those of
        other machines.

        A launcher that is about to report the failure of a rank has none left, either: then the
        output tells it.
        """
        if not waits_without_ranks(self.roots()):
            return False
        return self._find_error() is None and not _RANK_FAILED.search(self.last_lines())

    def find_catchers(self, number: signal.Signals) -> list[int]:
        """Return the processes that may be asked to save by this signal."""
        return find_catchers(self.roots(), number)

    def ask(self, pids: Sequence[int], number: signal.Signals) -> int:
        """Send a signal to processes of the program, so that they save; return how many there were.

        `end` leaves them alone while they save.
        """
        with self._lock:
            if self._reaped:
                return 0
            self._asked = [pid for pid in pids if send_signal(pid, number)]
            self._asked_at = time.monotonic()
            return len(self._asked)

    def notify(self, number: signal.Signals) -> None:
        """Ask the program to save, whether it catches the signal or not.

        Its child processes get no signal: they may have no handler for it.
        """
        self.ask(find_receivers(self.roots(), number), number)

    def end(self, grace_s: float) -> None:
        """Send SIGTERM to the program, and SIGKILL after `grace_s`.

        No SIGTERM reaches a program that is saving: a handler that has restored the default would
        lose the save. Return at once; may be repeated.
        """
        with self._lock:
            if self._reaped or self._killer is not None:
                return
            if not self._is_saving:
                self._terminate()
            self._killer = threading.Timer(grace_s, self.kill)
            self._killer.daemon = True
            self._killer.start()

    def kill(self) -> None:
        """Kill the program with all that it started.

        To signal its process group is not enough: torchrun's ranks have sessions of their own.
        Neither is the mark: programs may overwrite their environment, as setproctitle does.
        """
        with self._lock:
            if not self._reaped:
                self.killed_at = time.monotonic()
                started = [*descendants({self.pid}, read_stats())[1:], *self._survivors()]
                self._signal_group(signal.SIGKILL)
                for pid in started:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)

    def wait(self) -> ProgramExit:
        """Wait for the end of the program, and end everything that it started."""
        # Do not reap the process yet: until then no other process group can get its id, so the
        # group is safe to signal.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._signal_group(signal.SIGKILL)
            self._reaped = True
            returncode = self._process.wait()
            if self._killer is not None:
                self._killer.cancel()
        kill_all(self._survivors)
        ran_s = round(time.monotonic() - self._started, 3)
        oom_after = read_oom_kill_counts()
        for pump, _ in self._streams:
            pump.join(PUMP_JOIN_S)
        error = self._find_error() if returncode else self._find_unreported_error()
        _, stderr = self._streams[0]
        return ProgramExit(
            exit_status=returncode if returncode >= 0 else None,
            signal=-returncode if returncode < 0 else None,
            out_of_memory=out_of_memory(
                returncode, error["message"] if error else "", self._oom_before, oom_after
            ),
            error=error,
            tail=without_modules(self._tail.text())[-TAIL_CHARS:],
            ran_s=ran_s,
            stderr_line=last_words(stderr.text())[:STDERR_LINE_CHARS] if returncode else "",
        )

    def _survivors(self) -> list[int]:
        """Return the running processes that end with the program."""
        return survivors(self._workspace.work, self._workspace.family)

    def _find_error(self) -> dict[str, Any] | None:
        """Return the error that the output ends with, on stderr or else on stdout.

        The death of a launcher's worker wins: it is printed on either stream.
        """
        errors = [parse_traceback(tail.text(), self._package) for _, tail in self._streams]
        return min(filter(None, errors), key=lambda error: error["type"] != LAUNCHED, default=None)

    def _find_unreported_error(self) -> dict[str, Any] | None:
        """Return the error that a program printed last which exited 0."""
        errors = (find_unreported_error(tail.text(), self._package) for _, tail in self._streams)
        return next(filter(None, errors), None)

    @property
    def _is_saving(self) -> bool:
        """Whether a process was asked to save a short time ago, and has not ended."""
        if time.monotonic() - self._asked_at >= SAVE_MAX_S:
            return False
        return any(is_running(pid) for pid in self._asked)

    def _terminate(self) -> None:
        """Send SIGTERM to the whole process group."""
        self._signal_group(signal.SIGTERM)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _pump(self, name: Stream, stream: IO[bytes], tail: Tail) -> None:
        with stream:
            poll = select.poll()
            poll.register(stream, select.POLLIN)
            for lines in whole_lines(functools.partial(self._read, stream.fileno(), poll)):
                tail.add(lines)
                self._tail.add(lines)
                self._console.write(name, lines)

    def _read(self, descriptor: int, poll: select.poll, timeout_s: float | None) -> bytes | None:
        """Return the next bytes, which need not be a whole line: a progress bar is output, too.

        None if there are none within `timeout_s`.
        """
        if not poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000)):
            return None
        data = os.read(descriptor, 1 << 16)
        self.printed_at = time.monotonic()
        return data


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process exists and may be signalled."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
