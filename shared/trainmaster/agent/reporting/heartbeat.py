"""The signs of life: every 30 seconds, the time in a guest attribute of the VM, and a point in
Cloud Monitoring.

The main thread starts each write, so an agent that hangs writes none. The time is the metadata
server's. Neither write costs a call of a function. docs/decisions/0037-silent-agents.md.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.reporting.serial_console import Console

PATH = "instance/guest-attributes/trainmaster/heartbeat"
INTERVAL_S = 30.0
REFUSALS_MAX = 3  # refusals of points in a row after which no more are written


class Heartbeat:
    """The signs of life of one VM."""

    def __init__(
        self,
        metadata: MetadataServer,
        inbox: Inbox,
        console: Console,
        is_stuck: Callable[[], bool] = lambda: False,
        write_point: Callable[[str], object] | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`is_stuck`: whether the VM can neither run nor end a program.

        Then no sign is written, so that the VM is replaced. `write_point` writes the point of a
        time in RFC 3339, and raises HttpError; None: metrics are off.
        """
        self._metadata = metadata
        self._inbox = inbox
        self._console = console
        self._is_stuck = is_stuck
        self._write_point = write_point
        self._interval_s = interval_s
        self._refusals = 0
        self._reported: set[str] = set()

    def beat(self) -> None:
        """Write now, and again every `INTERVAL_S`. Call it once, on the main thread."""
        if not self._is_stuck():
            self._inbox.start_thread(self._write)
        self._inbox.post_later(self._interval_s, self.beat)

    def _write(self) -> None:
        """Write both signs.

        An image or an organization may forbid guest attributes, and an account may lack the role to
        write metrics: each is reported once, and the agent continues.
        """
        at = ""
        try:
            at = self._metadata.time()
            self._metadata.put(PATH, at)
        except HttpError as error:
            self._report("heartbeat", error)
        if not at or self._write_point is None or self._refusals >= REFUSALS_MAX:
            return
        try:
            self._write_point(at)
        except HttpError as error:
            if not error.transient:
                self._refusals += 1
                self._report("sign of life in Cloud Monitoring", error)
        else:
            self._refusals = 0

    def _report(self, what: str, error: HttpError) -> None:
        if what not in self._reported:
            self._console.log(f"The {what} cannot be written: {error}")
        self._reported.add(what)
