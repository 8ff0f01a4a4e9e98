"""Threads, conditions and clocks of agents in virtual time.

A thread is a greenlet. It runs until it waits, and never again once its process has ended.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar, cast

from greenlet import getcurrent, greenlet

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.clock import Clock
from trainmaster.agent.model.inbox import Inbox

if TYPE_CHECKING:
    from types import TracebackType

    from tests.explorer.agent_host import AgentHost
    from tests.explorer.world import World

T = TypeVar("T")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When a history begins."""
START_S: Final = START.timestamp()
BOOTED_S: Final = 1e5
"""The monotonic clock when the history begins. Agents must not take it for the time since 1970."""


@dataclass(eq=False)
class Threads:
    """All threads of one run of the agent."""

    world: World
    is_over: bool = False
    """Whether the agent has ended, with its machine or alone."""
    _begun: list[greenlet] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.at_end.append(self._unwind)

    def end(self) -> None:
        """The agent ends: none of its threads runs on."""
        self.is_over = True
        self.world.after(0.0, self._unwind)

    def _unwind(self) -> None:
        """End threads that would wait for ever. Their stacks refer to themselves, so that nothing
        else frees them.
        """
        for thread in self._begun:
            if not thread.dead:
                thread.throw()
        self._begun.clear()

    def start(self, work: Callable[[], object]) -> None:
        self.world.after(0.0, self._begin, work)

    def pause(self, seconds: float) -> None:
        """Pause the thread that calls this."""
        self.world.after(seconds, self._resume, getcurrent())
        self.world.park()

    def wake(self, thread: greenlet) -> None:
        """Let a thread that has parked run on."""
        self.world.after(0.0, self._resume, thread)

    def _begin(self, work: Callable[[], object]) -> None:
        if not self.is_over:
            self._begun = [thread for thread in self._begun if not thread.dead]
            thread = greenlet(work)
            self._begun.append(thread)
            thread.switch()

    def _resume(self, thread: greenlet) -> None:
        if not self.is_over:
            thread.switch()


class VirtualClock(Clock):
    """The clock of one machine, which may be wrong."""

    def __init__(self, host: AgentHost, threads: Threads) -> None:
        self._host = host
        self._threads = threads

    def now_s(self) -> float:
        return START_S + self._host.world.now_s + self._host.skew_s

    def monotonic_s(self) -> float:
        return BOOTED_S + self._host.world.now_s

    def sleep(self, seconds: float) -> None:
        self._threads.pause(seconds)


@dataclass(eq=False)
class _Waiter:
    thread: greenlet
    was_notified: bool = False
    is_over: bool = False


class VirtualCondition(threading.Condition):
    """A condition whose lock no thread ever waits for: only one thread runs at a time."""

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads
        self._parked: list[_Waiter] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        waiter = _Waiter(getcurrent())
        self._parked.append(waiter)
        if timeout is not None:
            self._threads.world.after(timeout, self._give_up, waiter)
        self._threads.world.park()
        return waiter.was_notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        world = self._threads.world
        end_s = math.inf if timeout is None else world.now_s + timeout
        while not (result := predicate()) and world.now_s < end_s:
            self.wait(None if timeout is None else end_s - world.now_s)
        return result

    def notify_all(self) -> None:
        for waiter in self._parked:
            waiter.was_notified = waiter.is_over = True
            self._threads.wake(waiter.thread)
        self._parked.clear()

    def _give_up(self, waiter: _Waiter) -> None:
        if not waiter.is_over:
            waiter.is_over = True
            self._parked.remove(waiter)
            self._threads.wake(waiter.thread)


@dataclass(eq=False)
class VirtualQueue:
    """The handlers that an agent's main thread has not run yet."""

    threads: Threads
    handlers: deque[Callable[[], None]] = field(default_factory=deque)
    waiting: greenlet | None = None
    """The main thread, if it waits for a handler."""

    def put(self, handler: Callable[[], None]) -> None:
        self.handlers.append(handler)
        if self.waiting is not None:
            self.threads.wake(self.waiting)
            self.waiting = None

    def get(self) -> Callable[[], None]:
        if not self.handlers:
            self.waiting = getcurrent()
            self.threads.world.park()
        return self.handlers.popleft()

    def empty(self) -> bool:
        return not self.handlers


class VirtualInbox(Inbox):
    """The inbox of the product, with threads, timers and metadata of a history."""

    def __init__(self, host: AgentHost, threads: Threads) -> None:
        super().__init__(cast("MetadataServer", None), VirtualClock(host, threads))
        self._host = host
        self._threads = threads
        self._handlers = VirtualQueue(threads)  # type: ignore[assignment]

    def post_later(self, delay_s: float, handler: Callable[[], None]) -> None:
        self._threads.world.after(delay_s, self._post_unless_over, handler)

    def _post_unless_over(self, handler: Callable[[], None]) -> None:
        if not self._threads.is_over:
            self.post(handler)

    def run_in_thread(self, work: Callable[[], None]) -> None:
        self._threads.start(work)

    def new_condition(self) -> threading.Condition:
        return VirtualCondition(self._threads)

    def watch(
        self, path: str, handler: Callable[[str], None], *, is_optional: bool = False
    ) -> None:
        del is_optional
        self._host.watch(path, lambda value: self.post(handler, value))

    def on_shutdown(self, handler: Callable[[], None]) -> None:
        self._host.on_sigterm = lambda: self.post(handler)
