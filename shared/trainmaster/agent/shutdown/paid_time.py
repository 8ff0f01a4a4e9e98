"""The end of a VM that the job's `maxCost` no longer pays for.

    directive ──► time until `paid_until`, by the metadata server's clock
                    ├── another directive extends it ──► again
                    └── the time is over ──► end this machine: SIGTERM for the program, and shutdown

While the functions of Trainmaster run, they extend the time before it is over, or cancel the job.
So it is over only if none has run for a while. docs/cost.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import ReceivedDirective
from trainmaster.agent.reporting.serial_console import Console

UP_MIN_S = 180.0
"""Time from the start of the agent for which it does not end the machine: a VM that was requested
long ago and has just started may have an old directive.
"""


class PaidTime:
    """Ends this machine when its time is over. Use it on the main thread only."""

    def __init__(
        self,
        inbox: Inbox,
        console: Console,
        read_time: Callable[[], str],
        end_machine: Callable[[], None],
    ) -> None:
        """`read_time` returns the metadata server's time in RFC 3339, and raises HttpError.

        `end_machine` is called on a thread.
        """
        self._inbox = inbox
        self._console = console
        self._read_time = read_time
        self._end_machine = end_machine
        self._started_s = inbox.clock.monotonic_s()
        self._until_s = 0.0
        self._is_over = False

    def on_directive(self, directive: ReceivedDirective) -> None:
        """Let the `paid_until` of this directive replace that of the one before."""
        if directive.paid_until != self._until_s:
            self._until_s = directive.paid_until
            self._measure(self._until_s)

    def _measure(self, until_s: float) -> None:
        """Measure how much time is left, on a thread."""
        if until_s and until_s == self._until_s and not self._is_over:
            self._inbox.start_thread(functools.partial(self._read, until_s))

    def _read(self, until_s: float) -> None:
        try:
            now_s = datetime.fromisoformat(self._read_time()).timestamp()
        except HttpError:  # the VM's own clock is rarely wrong
            now_s = self._inbox.clock.now_s()
        self._inbox.post(self._on_measured, until_s, until_s - now_s)

    def _on_measured(self, until_s: float, left_s: float) -> None:
        if until_s != self._until_s or self._is_over:
            return
        up_s = self._inbox.clock.monotonic_s() - self._started_s
        wait_s = max(left_s, UP_MIN_S - up_s)
        if wait_s > 0:
            self._inbox.post_later(wait_s, functools.partial(self._measure, until_s))
            return
        self._is_over = True
        self._console.log(
            "The job's maxCost pays for no more time, and no function has computed it again: ending"
            " this machine."
        )
        self._inbox.start_thread(self._end_machine)
