"""The peer channel: datagrams between the agents of a synchronous job, by UDP.

The replicas of such a job, its members, start together: each common start is a round.

    ask      ──► send to every peer, again each RESEND_S
             ──► all have answered, or the time is over ──► `on_done` gets the others

    receive  ──► not verified, or not of the running round ──► dropped
             ──► new serial number ──► handler, on the main thread ──► answer
             ──► repeated, and its handler has returned ──► answer

The channel only makes things faster. Nothing depends on it, because a datagram may be lost, late or
duplicated, or a firewall may drop all of them: whatever is asked here is also ordered by a
directive, more slowly (docs/decisions/0135-peer-channel.md).

A flood costs at most the handling of `WINDOW_MAX` datagrams each `WINDOW_S`, and no memory beside
the kernel's buffer: the main thread receives a datagram only if it is verified, and its serial
number is larger than the last one of its kind from this peer.
"""

from __future__ import annotations

import contextlib
import functools
import math
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainmaster.agent.channel.datagrams import BYTES_MAX, Datagram, decode, encode
from trainmaster.agent.google_http.http_call import backoffs
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import AgentIdentity, ChannelConfig, IncarnationKey
from trainmaster.agent.reporting.serial_console import Console

if TYPE_CHECKING:
    Address = tuple[str, int]

RESEND_S = 0.1  # between two datagrams to a peer that has not answered
WINDOW_S = 0.02  # length of a window, which begins with its first datagram
WINDOW_MAX = 256  # datagrams that are received in one window; later ones wait in the kernel
BIND_RETRY_MAX_S = 30.0  # longest wait between two tries to open the port


class PeerChannel:
    """This agent's end of the channel.

    Members are numbered from 0. Call `ask` and `on` on the main thread. `run` needs a thread of its
    own.
    """

    def __init__(
        self,
        config: ChannelConfig,
        identity: AgentIdentity,
        inbox: Inbox,
        console: Console,
        running: Callable[[], IncarnationKey | None],
    ) -> None:
        """`running` returns the round that was started last. It is called on any thread."""
        self._secret = config.key
        self._members = config.members
        """`HOST:PORT` of all members, in the order of their numbers."""
        self.number = config.first + identity.index
        """This agent's number among the members."""
        self._job_id = identity.config.job_id
        self._inbox = inbox
        self._clock = inbox.clock
        self._console = console
        self._running = running
        self.absent: Sequence[int] = ()
        """Numbers of the members that the running round goes without. No agent waits for their
        answers.
        """
        self._handlers: dict[str, Callable[[Datagram], bool | None]] = {}
        self._lock = threading.Lock()
        self._round: IncarnationKey | None = None
        """The round that the maps below are about."""
        self._last_received: dict[tuple[str, int], int] = {}
        """By kind and sender, the last serial number that was given to the handler."""
        self._last_handled: dict[tuple[str, int], int] = {}
        """By kind and sender, the last serial number for which the handler has returned."""
        self._asked: dict[str, int] = {}
        """By kind, the serial number of this agent's last question."""
        self._answers: dict[str, set[int]] = {}
        """By kind, the peers that answered this agent's last question."""
        self._socket: socket.socket | None = None

    def on(self, kind: str, handler: Callable[[Datagram], bool | None]) -> None:
        """Let the handler receive each peer's first datagram of a serial number, on the main
        thread.

        The datagram is answered unless the handler returns False.
        """
        self._handlers[kind] = handler

    def run(self) -> None:
        """Receive datagrams without end."""
        self.open()
        while True:
            self.receive_some()

    def receive_some(self) -> None:
        """Receive at most `WINDOW_MAX` datagrams within `WINDOW_S`, and wait for the first."""
        assert self._socket is not None  # noqa: S101 - `open` was called
        end = math.inf
        for _ in range(WINDOW_MAX):
            with contextlib.suppress(OSError):  # ICMP: the port of a peer is closed
                self._receive(*self._socket.recvfrom(BYTES_MAX + 1))
            end = min(end, self._clock.monotonic_s() + WINDOW_S)
            if self._clock.monotonic_s() >= end:
                return
        self._clock.sleep(max(0.0, end - self._clock.monotonic_s()))

    def ask(
        self,
        kind: str,
        key: IncarnationKey,
        seconds: Callable[[], Mapping[str, float]],
        for_s: float,
        on_done: Callable[[Sequence[int]], None],
        number: int = 0,
    ) -> None:
        """Send a datagram to every peer until each has answered, for `for_s` at most.

        `seconds` returns the times of each repetition. `on_done` receives the peers that did not
        answer, on the main thread. `number`: as in the datagram.
        """
        with self._lock:
            self._enter_round(key)
            serial = self._asked.get(kind, 0) + 1
            self._asked[kind] = serial
            self._answers[kind] = set()
        asked = Datagram(key, self.number, kind, serial, number=number)
        self._inbox.start_thread(
            functools.partial(self._send_until, asked, seconds, for_s, on_done)
        )

    def _send_until(
        self,
        asked: Datagram,
        seconds: Callable[[], Mapping[str, float]],
        for_s: float,
        on_done: Callable[[Sequence[int]], None],
    ) -> None:
        end = self._clock.monotonic_s() + for_s
        resolved: dict[int, Address] = {}
        not_asked = (self.number, *self.absent)
        silent = [number for number in range(len(self._members)) if number not in not_asked]
        while silent and self._clock.monotonic_s() < end and self._is_latest(asked):
            for number in silent:
                with contextlib.suppress(OSError):  # its name is not known yet, or no port is open
                    if number not in resolved:
                        resolved[number] = self.resolve(self._members[number])
                    self._send(replace(asked, seconds=seconds()), resolved[number])
            self._clock.sleep(RESEND_S)
            with self._lock:
                answered = self._answers.get(asked.kind, set())
                silent = [number for number in silent if number not in answered]
        self._inbox.post(on_done, silent)

    def _is_latest(self, asked: Datagram) -> bool:
        """Return whether neither a later question of this kind nor another round replaces it."""
        return self._asked.get(asked.kind) == asked.serial

    def _receive(self, data: bytes, address: Address) -> None:
        datagram = decode(data, self._job_id, self._secret)
        if datagram is None:
            return
        is_peer = 0 <= datagram.sender < len(self._members) and datagram.sender != self.number
        if not is_peer or datagram.key != self._running():
            return
        kind = datagram.kind
        with self._lock:
            self._enter_round(datagram.key)
            if datagram.answers:
                if datagram.serial == self._asked.get(kind):
                    self._answers[kind].add(datagram.sender)
                return
            if kind not in self._handlers:
                return
            source = (kind, datagram.sender)
            is_first = datagram.serial > self._last_received.get(source, 0)
            is_handled = datagram.serial <= self._last_handled.get(source, 0)
            self._last_received[source] = max(datagram.serial, self._last_received.get(source, 0))
        if is_first:
            self._inbox.post(self._handle, datagram, address)
        elif is_handled:
            self._answer(datagram, address)

    def _handle(self, datagram: Datagram, address: Address) -> None:
        if self._handlers[datagram.kind](datagram) is False:
            return
        with self._lock:
            if datagram.key == self._round:
                self._last_handled[datagram.kind, datagram.sender] = datagram.serial
        self._answer(datagram, address)

    def _answer(self, datagram: Datagram, address: Address) -> None:
        answer = replace(datagram, sender=self.number, answers=True, seconds={})
        with contextlib.suppress(OSError):  # the peer repeats its question
            self._send(answer, address)

    def _send(self, datagram: Datagram, address: Address) -> None:
        if self._socket is not None:
            self._socket.sendto(encode(datagram, self._job_id, self._secret), address)

    def _enter_round(self, key: IncarnationKey) -> None:
        """Forget what was about another round. Call it under the lock."""
        if key != self._round:
            self._round = key
            for known in (self._last_received, self._last_handled, self._asked, self._answers):
                known.clear()

    def open(self) -> None:
        """Open this agent's own port.

        Another process may have it for a while, and the VM's name may be unknown.
        """
        has_failed = False
        for wait in backoffs(BIND_RETRY_MAX_S):
            channel = socket.socket(type=socket.SOCK_DGRAM)
            try:
                channel.bind(self.resolve(self._members[self.number]))
            except OSError as error:
                channel.close()
                if not has_failed:
                    self._console.log(f"The port of the peer channel cannot be opened yet: {error}")
                has_failed = True
                self._clock.sleep(wait)
                continue
            self._socket = channel
            return

    @staticmethod
    def resolve(address: str) -> Address:
        """Return the IPv4 address and the port of `HOST:PORT`.

        Raises OSError if the name is not known.
        """
        host, _, port = address.rpartition(":")
        return socket.gethostbyname(host), int(port)
