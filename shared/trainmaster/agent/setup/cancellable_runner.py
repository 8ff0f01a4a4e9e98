"""Running helper programs one at a time, without keeping a shutdown waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.program.program import Program
from trainmaster.agent.setup.setup_errors import new_setup_error


class CancellableRunner:
    """Runs the helper programs of the setup, such as pip and apt-get, until `cancel`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._running: Program | None = None

    def run(self, start: Callable[[], Program]) -> ProgramExit:
        """Start a program and wait for its end. Raises SetupError after `cancel`."""
        with self._lock:
            if self._cancelled:
                raise new_setup_error("Cancelled", "the VM is shutting down", transient=True)
            program = self._running = start()
        return program.wait()

    def cancel(self) -> None:
        """Kill the running program and start no more. May be called from any thread."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                self._running.kill()
