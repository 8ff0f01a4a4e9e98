"""The agent's event queue: handlers from any thread, run one after the other on the main thread."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from http import HTTPStatus
from queue import SimpleQueue
from typing import NoReturn

from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.clock import Clock

WATCH_RETRY_MAX_S = 5.0  # longest wait until an entry of the metadata is asked for again
POLL_S = 1.0  # between two requests to a metadata server without long polls


class Inbox:
    """Runs handlers on the main thread, in the order in which they were posted."""

    def __init__(self, metadata: MetadataServer, clock: Clock | None = None) -> None:
        self._metadata = metadata
        self.clock = clock or Clock()
        """The time of this agent."""
        self._handlers: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, handler: Callable[..., None], *arguments: object) -> None:
        """Queue a handler. May be called from any thread."""
        self._handlers.put(functools.partial(handler, *arguments))

    def post_later(self, delay_s: float, handler: Callable[[], None]) -> None:
        """Queue a handler in `delay_s` seconds. May be called from any thread."""
        timer = threading.Timer(min(delay_s, threading.TIMEOUT_MAX), self.post, [handler])
        timer.daemon = True
        timer.start()

    def handle_next(self) -> None:
        """Wait for the next handler and run it."""
        self._handlers.get()()

    @property
    def is_empty(self) -> bool:
        """Whether no handler is queued."""
        return self._handlers.empty()

    def start_thread(self, work: Callable[[], None]) -> None:
        """Run `work` in a daemon thread. An exception there is raised on the main thread.

        Such an exception is a bug, and ends the agent; the startup script starts the agent again.
        An agent without one of its threads would run on and miss events.
        """

        def run_guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - handed over, not swallowed
                self.post(_raise, error)

        self.run_in_thread(run_guarded)

    def run_in_thread(self, work: Callable[[], None]) -> None:
        """Run `work`, which raises nothing, in a daemon thread."""
        threading.Thread(target=work, daemon=True).start()

    def new_condition(self) -> threading.Condition:
        """Return a condition by which threads of this agent wait for each other."""
        return threading.Condition()

    def watch(
        self, path: str, handler: Callable[[str], None], *, is_optional: bool = False
    ) -> None:
        """Post each new value of a metadata entry to `handler`, the current value first.

        `is_optional`: the entry does not exist on all machine types; stop watching if it is not
        found.
        """
        self.start_thread(
            functools.partial(self._watch_for_ever, path, handler, is_optional=is_optional)
        )

    def on_shutdown(self, handler: Callable[[], None]) -> None:
        """Post `handler` for each SIGTERM or SIGINT from now on.

        Call this on the main thread only.
        """
        self.start_thread(functools.partial(self._watch_signals, _open_signal_pipe(), handler))

    def _watch_for_ever(
        self, path: str, handler: Callable[[str], None], *, is_optional: bool
    ) -> None:
        last: str | None = None
        etag: str | None = None
        waits = backoffs(WATCH_RETRY_MAX_S)
        while True:
            try:
                value, etag = self._metadata.wait(path, etag)
            except HttpError as error:
                if is_optional and error.status == HTTPStatus.NOT_FOUND:
                    return
                etag = None
                self.clock.sleep(next(waits))
                continue
            waits = backoffs(WATCH_RETRY_MAX_S)
            if value != last:
                last = value
                self.post(handler, value.strip())
            if etag is None:  # this server has no long polls
                self.clock.sleep(POLL_S)

    def _watch_signals(self, pipe: int, handler: Callable[[], None]) -> None:
        while os.read(pipe, 1):
            self.post(handler)


def _open_signal_pipe() -> int:
    """Return a pipe that receives a byte for each SIGTERM or SIGINT from now on.

    A Python signal handler alone would be late: if the signal arrives just before the main thread
    blocks, Python runs the handler only after the main thread wakes up.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader


def _raise(error: Exception) -> NoReturn:
    raise error
