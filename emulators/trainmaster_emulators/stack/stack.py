"""Start, find and stop a local stack, for the command line and the tests.

with running_stack(state_dir, config) as state:
    … client_configuration.environment(state_dir, state) …

The stack ends with the block, or with this process.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trainmaster_emulators.process import backends, processes
from trainmaster_emulators.process import state as states
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError, StackState, StackStatus

POLL_S: Final = 0.05
STOP_S: Final = 30.0
LOG_TAIL_CHARS: Final = 2_000


class Stack:
    """A stack that this process started."""

    def __init__(self, state_dir: Path, stack_id: str, watchdog: subprocess.Popen[bytes]) -> None:
        self.state_dir = state_dir
        self._id = stack_id
        self._watchdog = watchdog

    @property
    def state(self) -> StackState:
        state = states.read(self.state_dir)
        if state is None or state.id != self._id:
            raise StackError(f"another stack has been started in {self.state_dir}")
        return state

    def wait_ready(self) -> StackState:
        """Wait until the stack is ready.

        Otherwise stop all of it and raise StackError with the reason.
        """
        try:
            return self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self) -> StackState:
        while True:
            status = self._watchdog.poll()
            state = states.read(self.state_dir)
            if state is not None and state.id == self._id:
                if state.status is StackStatus.READY:
                    return state
                if state.status is StackStatus.FAILED:
                    raise StackError(state.error or "the stack failed")
            if status is not None:
                raise StackError(self._failure_text(status))
            time.sleep(POLL_S)

    def wait_end(self) -> None:
        """Wait until the stack has stopped. Raises StackError if it failed."""
        status = self._watchdog.wait()
        self.stop()
        if status:
            raise StackError(self.state.error or self._failure_text(status))

    def stop(self) -> None:
        """Close the lifeline and wait until no process is left."""
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        else:
            self._watchdog.terminate()
        self._watchdog.wait()

    def _failure_text(self, status: int) -> str:
        if status == states.ALREADY_UP:
            return _already_up_text(self.state_dir)
        log = self.state_dir / states.LOGS / states.SUPERVISOR_LOG
        log_tail = log.read_text(encoding="utf-8", errors="replace").strip()[-LOG_TAIL_CHARS:]
        return log_tail or f"the stack ended with status {status}"


def _already_up_text(state_dir: Path) -> str:
    return f"a stack is already running in {state_dir}. Stop it with `trainmaster local down`"


def start(state_dir: Path, config: StackConfig, *, detach: bool = False) -> Stack:
    """Start a stack without waiting until it is ready.

    Unless detached, the stack ends when this process ends for any reason. Raises StackError where
    another stack runs in the directory, or the emulators cannot run on this machine.
    """
    state_dir = _prepare(state_dir)
    backends.require_backend(config.emulators, in_memory=bool(config.control_plane))
    stack_id = secrets.token_hex(16)
    log = state_dir / states.LOGS / states.SUPERVISOR_LOG
    watchdog = [sys.executable, "-P", "-m", "trainmaster_emulators.process.parent_watchdog"]
    watchdog += [] if detach else ["--lifeline"]
    program = [sys.executable, "-P", "-m", "trainmaster_emulators.stack.supervisor"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*watchdog, *program, str(state_dir), config.model_dump_json()],
            env=processes.service_environment(stack_id),
            stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches the caller only, which then stops the stack in order.
            start_new_session=True,
        )
    return Stack(state_dir, stack_id, process)


@contextmanager
def running_stack(state_dir: Path, config: StackConfig) -> Iterator[StackState]:
    """Run a stack for the length of the block, which starts when the stack is ready."""
    stack = start(state_dir, config)
    try:
        yield stack.wait_ready()
    finally:
        stack.stop()


def find(state_dir: Path) -> StackState:
    """Return the stack that runs in that directory. Raises StackError if none does."""
    state = states.read(state_dir)
    if state is None or not states.is_up(state_dir):
        raise StackError(
            f"no stack is running in {state_dir}. Start one with `trainmaster local up`"
        )
    return state


def stop(state_dir: Path) -> bool:
    """Stop the stack of that directory and kill what a killed stack left.

    Return whether there was anything to stop.
    """
    state = states.read(state_dir)
    if state is None:
        return False
    was_up = states.is_up(state_dir)
    if was_up and states.is_supervisor_alive(state):
        with suppress(ProcessLookupError):
            os.kill(state.supervisor_pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline and (
            states.is_up(state_dir) or processes.list_processes(state.id)
        ):
            time.sleep(POLL_S)
    return processes.kill_stack(state.id) > 0 or was_up


def _prepare(state_dir: Path) -> Path:
    """Create the directory, which only this user can open.

    Refuse one of another user, one with links, and one with other contents than a stack's, because
    starting writes and empties parts of it.
    """
    state_dir = state_dir.absolute()
    state_dir.mkdir(mode=states.PRIVATE, parents=True, exist_ok=True)
    if states.is_up(state_dir):
        raise StackError(_already_up_text(state_dir))
    if state_dir.is_symlink() or state_dir.stat().st_uid != os.geteuid():
        raise StackError(
            f"{state_dir} is a symbolic link, or belongs to another user. Use a folder of your own"
        )
    entries = [*state_dir.iterdir(), *(state_dir / states.LOGS).glob("*")]
    links = sorted(entry.name for entry in entries if entry.is_symlink())
    if links:
        raise StackError(
            f"{state_dir} has symbolic links ({', '.join(links[:3])}), and the stack would write to"
            " where they lead. Use a new or an empty directory"
        )
    stack_entries = {states.STATE_FILE, states.LOCK_FILE, states.LOGS, *states.DATA}
    foreign = sorted(entry.name for entry in state_dir.iterdir() if entry.name not in stack_entries)
    if foreign and not (state_dir / states.LOCK_FILE).exists():
        raise StackError(
            f"{state_dir} holds other files ({', '.join(foreign[:3])}). Use a new or an empty"
            " directory"
        )
    state_dir.chmod(states.PRIVATE)
    (state_dir / states.LOGS).mkdir(exist_ok=True)
    return state_dir
