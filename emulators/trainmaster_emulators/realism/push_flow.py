"""Pub/Sub's flow control for an endpoint that sometimes fails: fewer messages at a time, and
pauses.

Both apply to the whole subscription, not to one message. Source: "Push subscriptions" of Pub/Sub,
"Push backoff" (100 ms to 60 s) and "Delivery rate" (a window that grows with each success and
shrinks with each failure).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

WINDOW_START: Final = 3
"""Source: "a small single-digit number"."""
WINDOW_MAX: Final = 1_000
BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 60.0
FIRST_FAILURE: Final = 400
"""The lowest HTTP status that is a negative acknowledgement."""


class PushFlow:
    """The state of one subscription. Thread-safe."""

    def __init__(
        self, time_scale: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scale = time_scale
        self._clock = clock
        self._changed = threading.Condition()
        self._in_flight = 0
        self._resumes_at = 0.0
        self.window = WINDOW_START
        self.backoff_s = 0.0
        """Current pause after a failure, before `time_scale` is applied; 0 if the last delivery
        succeeded.
        """

    @contextmanager
    def delivery(self) -> Iterator[Callable[[bool], None]]:
        """Wait until a message may be delivered.

        The caller calls the yielded function with the result, once.
        """
        with self._changed:
            while True:
                pause_s = self._resumes_at - self._clock()
                if pause_s > 0:
                    self._changed.wait(pause_s)
                elif self._in_flight >= self.window:
                    self._changed.wait()
                else:
                    break
            self._in_flight += 1
        try:
            yield self._record_result
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify_all()

    def _record_result(self, is_acknowledged: bool) -> None:  # noqa: FBT001 - a callback
        with self._changed:
            if is_acknowledged:
                self.window = min(self.window + 1, WINDOW_MAX)
                self.backoff_s = 0.0
            else:
                self.window = max(self.window // 2, 1)
                self.backoff_s = min(max(2 * self.backoff_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
                self._resumes_at = self._clock() + self.backoff_s * self._scale


class PushedApplication:
    """A WSGI application to which Pub/Sub pushes.

    POST requests wait as messages would; other requests do not.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]], flow: PushFlow) -> None:
        self._application = application
        self._flow = flow

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            return self._application(environ, start_response)
        statuses: list[int] = []

        def start(status: str, *arguments: Any) -> Any:
            statuses.append(int(status.split(" ", 1)[0]))
            return start_response(status, *arguments)

        with self._flow.delivery() as record_result:
            try:
                return self._application(environ, start)
            finally:
                record_result(bool(statuses) and statuses[-1] < FIRST_FAILURE)
