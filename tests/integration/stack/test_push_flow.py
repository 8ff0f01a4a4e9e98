"""Deliveries of a realistic Pub/Sub: failures of one message delay all messages of the
subscription.

The window is how many messages Pub/Sub pushes at once. The backoff is its pause after failures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from trainmaster_emulators.realism.push_flow import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    WINDOW_START,
    PushedApplication,
    PushFlow,
)


def deliver(flow: PushFlow, *, acknowledged: bool) -> None:
    """Push one message to a function, which acknowledges it or fails."""
    with flow.delivery() as note:
        note(acknowledged)


def test_backoff_doubles_with_each_failure_and_ends_with_a_success() -> None:
    now = [0.0]
    flow = PushFlow(time_scale=0.0, clock=lambda: now[0])
    seen = []
    for _ in range(12):
        deliver(flow, acknowledged=False)
        seen.append(flow.backoff_s)
    assert seen[:4] == [0.1, 0.2, 0.4, 0.8]
    assert seen[-1] == BACKOFF_MAX_S
    deliver(flow, acknowledged=True)
    assert flow.backoff_s == 0


def test_window_shrinks_with_failures_to_one_and_grows_with_successes() -> None:
    flow = PushFlow(time_scale=0.0)
    for _ in range(5):
        deliver(flow, acknowledged=True)
    assert flow.window == WINDOW_START + 5
    for _ in range(5):
        deliver(flow, acknowledged=False)
    assert flow.window == 1


def test_delivery_after_a_failure_waits_for_the_scaled_backoff() -> None:
    scale, tolerance_s = 2.0, 0.01
    flow = PushFlow(time_scale=scale)
    deliver(flow, acknowledged=False)
    start = time.monotonic()
    deliver(flow, acknowledged=True)
    assert time.monotonic() - start >= scale * BACKOFF_MIN_S - tolerance_s


def test_no_more_messages_than_the_window_are_delivered_at_once() -> None:
    flow, released = PushFlow(time_scale=0.0), threading.Event()
    lock, running, most = threading.Lock(), [0], [0]

    def one() -> None:
        with flow.delivery():
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            released.wait(10)
            with lock:
                running[0] -= 1

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert running[0] == WINDOW_START
    released.set()
    for thread in threads:
        thread.join(10)
    assert most[0] == WINDOW_START


def test_application_is_delayed_by_its_own_failures_but_not_for_other_methods() -> None:
    statuses = iter(["503 Service Unavailable", "204 No Content"])

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK" if environ["REQUEST_METHOD"] == "GET" else next(statuses), [])
        return [b""]

    now_s = [0.0]
    flow = PushFlow(clock=lambda: now_s[0])
    pushed = PushedApplication(application, flow)
    answered: list[str] = []

    def send(method: str) -> None:
        pushed({"REQUEST_METHOD": method}, lambda status, *_: answered.append(status[:3]))

    send("POST")
    delayed = threading.Thread(target=send, args=["POST"])
    delayed.start()
    time.sleep(3 * BACKOFF_MIN_S)
    send("GET")
    assert answered == ["503", "200"]
    now_s[0] = BACKOFF_MIN_S
    delayed.join()
    assert answered == ["503", "200", "204"]
    assert flow.backoff_s == 0
