"""Start, find and stop a local stack: what the command line and the tests use.

with running_stack(state_dir, config) as state:   # ends with the block, and with this process
    … clients.environment(state_dir, state) …
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

from emulators.stack import backends, processes, supervisor
from emulators.stack import state as states
from emulators.stack.state import StackConfig, StackError, StackState, StackStatus

POLL_S: Final = 0.05
STOP_S: Final = 30.0
LOG_TAIL: Final = 2_000


class Stack:
    """A stack this process started."""

    def __init__(self, state_dir: Path, stack_id: str, guard: subprocess.Popen[bytes]) -> None:
        self.state_dir = state_dir
        self._id = stack_id
        self._guard = guard

    @property
    def state(self) -> StackState:
        state = states.read(self.state_dir)
        if state is None or state.id != self._id:
            raise StackError(f"the stack in {self.state_dir} is another one by now")
        return state

    def wait_ready(self) -> StackState:
        """Raises StackError with the reason when it does not come up; nothing is left then."""
        try:
            return self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self) -> StackState:
        while True:
            ended = self._guard.poll()
            state = states.read(self.state_dir)
            if state is not None and state.id == self._id:
                if state.status is StackStatus.READY:
                    return state
                if state.status is StackStatus.FAILED:
                    raise StackError(state.error or "the stack failed")
            if ended is not None:
                raise StackError(self._why(ended))
            time.sleep(POLL_S)

    def wait_end(self) -> None:
        """Until somebody stops it. Raises StackError when it failed."""
        status = self._guard.wait()
        self.stop()
        if status:
            raise StackError(self.state.error or self._why(status))

    def stop(self) -> None:
        """Close the lifeline and wait until nothing is left."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        else:
            self._guard.terminate()
        self._guard.wait()

    def _why(self, status: int) -> str:
        if status == supervisor.ALREADY_UP:
            return already_up(self.state_dir)
        log = self.state_dir / states.LOGS / states.SUPERVISOR_LOG
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-LOG_TAIL:]
        return said or f"the stack ended with status {status}"


def already_up(state_dir: Path) -> str:
    return f"a stack is already up in {state_dir}: `trainmaster local down` stops it"


def start(state_dir: Path, config: StackConfig, *, detach: bool = False) -> Stack:
    """Begin to start a stack. Unless detached it ends when this process does, however that ends."""
    state_dir = _prepare(state_dir)
    backends.need_emulators(config.emulators, in_memory=bool(config.control_plane))
    stack_id = secrets.token_hex(16)
    log = state_dir / states.LOGS / states.SUPERVISOR_LOG
    guard = [sys.executable, "-m", "emulators.stack.parent_watchdog", *([] if detach else ["--lifeline"])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*guard, sys.executable, "-m", "emulators.stack.supervisor", str(state_dir), config.model_dump_json()],
            env=processes.service_environment(stack_id),
            stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the caller, which then stops the stack in order
        )
    return Stack(state_dir, stack_id, process)


@contextmanager
def running_stack(state_dir: Path, config: StackConfig) -> Iterator[StackState]:
    """A ready stack for the length of the block."""
    stack = start(state_dir, config)
    try:
        yield stack.wait_ready()
    finally:
        stack.stop()


def find(state_dir: Path) -> StackState:
    """The stack that is up there. Raises StackError where none is."""
    state = states.read(state_dir)
    if state is None or not states.is_up(state_dir):
        raise StackError(f"no stack is up in {state_dir}: `trainmaster local up` starts one")
    return state


def down(state_dir: Path) -> bool:
    """Stop the stack of that directory, or what a killed one left. Whether there was anything to stop."""
    state = states.read(state_dir)
    if state is None:
        return False
    was_up = states.is_up(state_dir)
    if was_up and states.supervisor_lives(state):
        with suppress(ProcessLookupError):
            os.kill(state.supervisor_pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline and (states.is_up(state_dir) or processes.of_stack(state.id)):
            time.sleep(POLL_S)
    return processes.kill_stack(state.id) > 0 or was_up


def _prepare(state_dir: Path) -> Path:
    """Create the directory, and refuse one that holds anything but a stack: `up` empties parts of it."""
    state_dir = state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    if states.is_up(state_dir):
        raise StackError(already_up(state_dir))
    ours = {states.STATE_FILE, states.LOCK_FILE, states.LOGS, *states.DATA}
    foreign = sorted(entry.name for entry in state_dir.iterdir() if entry.name not in ours)
    if foreign and not (state_dir / states.LOCK_FILE).exists():
        raise StackError(f"{state_dir} is not a stack's directory: it holds {', '.join(foreign[:3])}")
    (state_dir / states.LOGS).mkdir(exist_ok=True)
    return state_dir
