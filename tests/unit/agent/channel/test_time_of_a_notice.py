"""How soon a notice, that a VM will be given up, reaches every member of its job over real sockets:
`pytest -s -m heavy` prints the times.

Goal: every program has its signal two seconds after the notice, of which half a second is the
agreed moment.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue

import pytest

from tests.integration.agent.support.vm import agent_identity
from tests.support.load import is_quick
from tests.unit.agent.channel.test_peer_channel import KEY, DirectInbox
from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.saving import ASK_S, KIND, MOMENT_S
from trainmaster.agent.model.vm_config import ChannelConfig, IncarnationKey
from trainmaster.agent.reporting.serial_console import Console

NOTICES = 40
GOAL_S = 2.0


def free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(closing(socket.socket(type=socket.SOCK_DGRAM)))
            for _ in range(count)
        ]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{bound.getsockname()[1]}" for bound in sockets]


def last_arrivals(size: int) -> Iterator[float]:
    """Yield, for each notice, the seconds until the last of the other members has handled it."""
    members = free_addresses(size)
    rounds = [0]  # the number of the running round, which the loop below changes
    arrivals: list[float] = []
    is_over = threading.Event()

    def receive(channel: PeerChannel) -> None:
        while not is_over.is_set():
            channel.receive_some()

    with ExitStack() as sockets, ThreadPoolExecutor(size) as pool, ExitStack() as end:
        end.callback(is_over.set)
        identity = agent_identity()
        configs = [ChannelConfig(KEY, number - identity.index, members) for number in range(size)]
        channels = [
            PeerChannel(
                config, identity, DirectInbox(), Console(-1), lambda: IncarnationKey(1, rounds[0])
            )
            for config in configs
        ]
        for channel in channels:
            channel.on(KIND, lambda _: arrivals.append(time.monotonic()))
            channel.open()
            assert channel._socket
            channel._socket.settimeout(0.2)
            sockets.enter_context(closing(channel._socket))
            pool.submit(receive, channel)
        for number in range(1, NOTICES + 1):
            rounds[0] = number
            arrivals.clear()
            answers: SimpleQueue[Sequence[int]] = SimpleQueue()
            began = time.monotonic()
            channels[-1].ask(
                KIND, IncarnationKey(1, number), lambda: {"in": MOMENT_S}, ASK_S, answers.put
            )
            assert answers.get(timeout=30) == []
            yield max(arrivals) - began


# A few seconds for each size.
@pytest.mark.heavy(
    fact="a notice reaches all members of a large gang in time",
    quick="`unit/agent/channel/test_peer_channel.py`",
)
@pytest.mark.parametrize("size", [2, 4, 16])
def test_notice_reaches_all_members_long_before_the_goal(size: int) -> None:
    times = sorted(last_arrivals(size))
    print(
        f"N = {size}: median {times[NOTICES // 2]:.3f} s, p99 {times[-1]:.3f} s, load"
        f" {os.getloadavg()[0]:.0f}"
    )
    assert is_quick(times[-1], GOAL_S - MOMENT_S)
