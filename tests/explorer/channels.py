"""The peer channels of a history: the product's own channel, on a network that loses datagrams."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, cast

from trainmaster.agent.channel.peer_channel import PeerChannel

if TYPE_CHECKING:
    from tests.explorer.agent_host import AgentHost
    from tests.explorer.threads import Threads
    from tests.explorer.world import World

    Address = tuple[str, int]

DATAGRAMS_LOST: Final = 0.2
"""Share of the pairs of members between which no datagram arrives, of each round."""
DATAGRAM_S: Final = (0.001, 0.05)


class Network:
    """UDP between all machines."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._channels: dict[Address, VirtualChannel] = {}
        self._is_cut: dict[tuple[Address, Address, object], bool] = {}

    def open(self, address: Address, channel: VirtualChannel) -> None:
        self._channels[address] = channel

    def send(self, sender: VirtualChannel, data: bytes, address: Address) -> None:
        path = (sender.address, address, sender.round)
        if path not in self._is_cut:
            self._is_cut[path] = self._world.rng.random() < DATAGRAMS_LOST
        receiver = self._channels.get(address)
        if receiver is not None and not self._is_cut[path]:
            self._world.within(DATAGRAM_S, receiver.arrive, data, sender.address)


class VirtualChannel(PeerChannel):
    """The channel between the agents of a gang, over datagrams of the virtual network."""

    address: Address
    round: object = None
    """The round that the machine runs."""

    def connect(self, host: AgentHost, threads: Threads) -> None:
        self._network = host.world.network
        self._threads = threads
        self.address = self.resolve(self._members[self.number])
        self._socket = cast("socket.socket", self)
        self._network.open(self.address, self)

    @staticmethod
    def resolve(address: str) -> Address:
        host, _, port = address.rpartition(":")
        return host, int(port)

    def sendto(self, data: bytes, address: Address) -> None:
        """Send, as the socket of a real channel does."""
        self.round = self._running()
        self._network.send(self, data, address)

    def arrive(self, data: bytes, address: Address) -> None:
        if not self._threads.is_over:
            self._receive(data, address)
