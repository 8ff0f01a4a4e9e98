"""The heartbeat: the time, written to a guest attribute of the VM every minute.

The main thread starts each write, so an agent that hangs writes none. The time is the metadata server's. Writing needs
no permission, and costs no call of a function: `provision` reads the attribute when the sweep requests it.
docs/decisions/0037-silent-agents.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.agent.google_http.http_call import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainmaster.agent.google_http.metadata_server import MetadataServer
    from trainmaster.agent.model.inbox import Inbox
    from trainmaster.agent.reporting.serial_console import Console

PATH = "instance/guest-attributes/trainmaster/heartbeat"
INTERVAL_S = 60.0


class Heartbeat:
    def __init__(
        self,
        metadata: MetadataServer,
        inbox: Inbox,
        console: Console,
        is_stuck: Callable[[], bool] = lambda: False,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`is_stuck`: whether the VM can neither run nor end a program. Then no heartbeat is written, so that the VM is
        replaced."""
        self._metadata = metadata
        self._inbox = inbox
        self._console = console
        self._is_stuck = is_stuck
        self._interval_s = interval_s
        self._has_failed = False

    def beat(self) -> None:
        """Write now, and again every `INTERVAL_S`. Call it once, on the main thread."""
        if not self._is_stuck():
            self._inbox.start_thread(self._write)
        self._inbox.post_later(self._interval_s, self.beat)

    def _write(self) -> None:
        """An image or an organization may forbid guest attributes: that is reported once, and the agent continues."""
        try:
            self._metadata.put(PATH, self._metadata.time())
        except HttpError as error:
            if not self._has_failed:
                self._console.log(f"The heartbeat cannot be written: {error}")
            self._has_failed = True
