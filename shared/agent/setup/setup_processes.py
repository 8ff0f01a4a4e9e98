"""Programs that setting up runs, one at a time, and that a shutdown must not wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shared.agent.setup.failure import failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.agent.program.program import Ended, Program


class Children:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._running: Program | None = None

    def run(self, start: Callable[[], Program]) -> Ended:
        """Waits for its end. Raises SetupError once cancelled."""
        with self._lock:
            if self._cancelled:
                raise failed("Cancelled", "the VM is shutting down", transient=True)
            program = self._running = start()
        return program.wait()

    def cancel(self) -> None:
        """Kills what runs and starts nothing more; from another thread."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                self._running.kill()
