"""What arrives, brought to the main thread: one handler after the other, whoever saw it happen."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from http import HTTPStatus
from queue import SimpleQueue
from typing import TYPE_CHECKING

from shared.agent.http.calls import HttpError, backoffs

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from shared.agent.http.metadata_server import Metadata


class Inbox:
    """Handlers to be run on the main thread, in the order in which they were posted, from any thread."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._handlers: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, handler: Callable[..., None], *arguments: object) -> None:
        """From any thread."""
        self._handlers.put(functools.partial(handler, *arguments))

    def handle_next(self) -> None:
        """Waits for the next handler and runs it."""
        self._handlers.get()()

    @property
    def is_empty(self) -> bool:
        return self._handlers.empty()

    def thread(self, work: Callable[[], None]) -> None:
        """A failing thread is a bug: it ends the agent, which is started again, rather than make it deaf."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - handed over, not swallowed
                self.post(_raise, error)

        threading.Thread(target=guarded, daemon=True).start()

    def watch(self, path: str, changed: Callable[[str], None], *, is_optional: bool = False) -> None:
        """Posts each new value of a metadata entry, the current one first; an optional one that is not there on this
        type of machine is not asked for again."""
        self.thread(functools.partial(self._watch_for_ever, path, changed, is_optional=is_optional))

    def later(self, delay_s: float, handler: Callable[[], None]) -> None:
        timer = threading.Timer(min(delay_s, threading.TIMEOUT_MAX), self.post, [handler])
        timer.daemon = True
        timer.start()

    def on_shutdown(self, handler: Callable[[], None]) -> None:
        """Posts it for each SIGTERM or SIGINT from now on. On the main thread only."""
        self.thread(functools.partial(self._wait_for_signal, _signalled(), handler))

    def _watch_for_ever(self, path: str, changed: Callable[[str], None], *, is_optional: bool) -> None:
        """In a thread of its own."""
        last: str | None = None
        etag: str | None = None
        waits = backoffs(5.0)
        while True:
            try:
                value, etag = self._metadata.wait(path, etag)
            except HttpError as error:
                if is_optional and error.status == HTTPStatus.NOT_FOUND:
                    return
                etag = None
                time.sleep(next(waits))
                continue
            waits = backoffs(5.0)
            if value != last:
                last = value
                self.post(changed, value.strip())
            if etag is None:  # a server that cannot be waited for
                time.sleep(1.0)

    def _wait_for_signal(self, pipe: int, handler: Callable[[], None]) -> None:
        """In a thread of its own."""
        while os.read(pipe, 1):
            self.post(handler)


def _signalled() -> int:
    """A pipe that gets a byte for each SIGTERM or SIGINT from now on.

    A Python handler alone would be late: one that arrives just before the main thread blocks runs only after it.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader


def _raise(error: Exception) -> NoReturn:
    raise error
