"""The peer channel, on which the agents of a job exchange signed datagrams: which of them count,
what is answered, and what a flood costs.

An agent asks its peers a question of some kind, such as `save`, in a round: one common start of all
members. `serial` numbers the questions of an agent.
"""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.channel.datagrams import BYTES_MAX, MAGIC, Datagram, decode, encode
from trainmaster.agent.channel.peer_channel import WINDOW_MAX, WINDOW_S, PeerChannel
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import ChannelConfig, IncarnationKey
from trainmaster.agent.reporting.serial_console import Console

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
ROUND = IncarnationKey(1, 3)
SAVE = Datagram(ROUND, sender=0, kind="save", serial=1, seconds={"in": 0.5})
PEER = ("127.0.0.1", 9)


class DirectInbox(Inbox):
    """Runs handlers at once, on the thread that posts them."""

    def __init__(self) -> None:
        super().__init__(MetadataServer("127.0.0.1:1"))

    def post(self, handler: Callable[..., None], *arguments: object) -> None:
        handler(*arguments)


class SentDatagrams(socket.socket):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(type=socket.SOCK_DGRAM)
        self.sent: list[Datagram] = []

    def sendto(self, data: bytes, address: object) -> int:  # type: ignore[override]
        datagram = decode(data, "digits_1", KEY)
        assert datagram is not None
        self.sent.append(datagram)
        return len(data)


class Member:
    """Member 2 of three, with the datagrams that it handled and sent."""

    def __init__(self, members: Sequence[str] = ("a:1", "b:1", "c:1")) -> None:
        self.running: IncarnationKey | None = ROUND
        self.handled: list[Datagram] = []
        config, inbox = ChannelConfig(KEY, 1, members), DirectInbox()
        self.channel = PeerChannel(
            config, agent_identity(), inbox, Console(-1), lambda: self.running
        )
        self.channel.on("save", self.handled.append)

    def receive(self, *datagrams: bytes) -> list[Datagram]:
        """Receive datagrams, and return the answers."""
        with SentDatagrams() as out:
            self.channel._socket = out
            for data in datagrams:
                self.channel._receive(data, PEER)
            return out.sent


@pytest.fixture
def member() -> Member:
    return Member()


def signed(datagram: Datagram, job_id: str = "digits_1", key: bytes = KEY) -> bytes:
    return encode(datagram, job_id, key)


def with_body(body: bytes) -> bytes:
    """Return a datagram whose signature is right, as only an agent of the job can make it."""
    import hmac

    return MAGIC + hmac.digest(KEY, body, "sha256") + body


FIELDS = {
    "job": "digits_1",
    "attempt": 1,
    "round": 3,
    "from": 0,
    "kind": "save",
    "serial": 1,
    "answers": False,
    "number": 1,
}


def test_datagram_of_a_peer_is_handled_and_answered(member: Member) -> None:
    assert member.receive(signed(SAVE)) == [
        Datagram(ROUND, sender=2, kind="save", serial=1, answers=True)
    ]
    assert member.handled == [SAVE]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"x" * 60_000, id="huge"),
        pytest.param(signed(SAVE)[:-1], id="cut"),
        pytest.param(signed(SAVE) + b" ", id="extended"),
        pytest.param(b"TM2" + signed(SAVE)[3:], id="other version"),
        pytest.param(signed(SAVE, key=OTHER_KEY), id="key of another job"),
        pytest.param(signed(SAVE, job_id="digits_2"), id="another job"),
        pytest.param(
            signed(SAVE).replace(b'"round":3', b'"round":4'), id="round changed on its way"
        ),
        pytest.param(signed(replace(SAVE, key=IncarnationKey(1, 2))), id="late: an older round"),
        pytest.param(signed(replace(SAVE, key=IncarnationKey(2, 3))), id="early: a later attempt"),
        pytest.param(signed(replace(SAVE, sender=2)), id="own number"),
        pytest.param(signed(replace(SAVE, sender=3)), id="number of no member"),
        pytest.param(signed(replace(SAVE, sender=-1)), id="negative number"),
        pytest.param(signed(replace(SAVE, kind="unknown")), id="unknown kind"),
        pytest.param(signed(replace(SAVE, seconds={"in": float("nan")})), id="no number"),
        pytest.param(signed(replace(SAVE, seconds={"in": 1e30})), id="huge number"),
        pytest.param(
            signed(replace(SAVE, seconds={str(n): 0.0 for n in range(BYTES_MAX)})), id="too long"
        ),
        *(
            pytest.param(with_body(body), id=f"malformed {number}")
            for number, body in enumerate(
                [
                    b"null",
                    b"[" * 900,
                    b"{}",
                    json.dumps({**FIELDS, "seconds": []}).encode(),
                    json.dumps({**FIELDS, "seconds": {"in": None}}).encode(),
                    json.dumps({**FIELDS, "seconds": {}, "from": "x"}).encode(),
                    b"\xff\xfe",
                ]
            )
        ),
    ],
)
def test_datagram_that_no_peer_of_this_round_sent_is_dropped(member: Member, data: bytes) -> None:
    assert member.receive(data) == []
    assert member.handled == []


def test_repeated_datagram_is_handled_once_and_answered_again(member: Member) -> None:
    assert len(member.receive(*[signed(SAVE)] * 5)) == 5
    assert member.handled == [SAVE]


def test_question_that_the_handler_denies_is_not_answered_until_it_is_asked_anew(
    member: Member,
) -> None:
    answers = iter([False, True])
    member.channel.on("still", lambda _: next(answers))
    still = replace(SAVE, kind="still")
    assert member.receive(*[signed(still)] * 3, signed(still, key=OTHER_KEY)) == []
    assert member.receive(signed(replace(still, serial=2))) == [
        Datagram(ROUND, sender=2, kind="still", serial=2, answers=True)
    ]


def test_later_question_and_each_peer_are_handled_and_an_older_question_is_not(
    member: Member,
) -> None:
    again, other = replace(SAVE, serial=2), replace(SAVE, sender=1)
    assert len(member.receive(signed(SAVE), signed(again), signed(SAVE), signed(other))) == 4
    assert member.handled == [SAVE, again, other]


def test_datagram_counts_again_in_the_next_round_only(member: Member) -> None:
    following = replace(SAVE, key=IncarnationKey(1, 4))
    member.receive(signed(SAVE))
    member.running = following.key
    assert member.receive(signed(SAVE), signed(following))
    assert member.handled == [SAVE, following]


def test_nothing_is_handled_before_the_first_round(member: Member) -> None:
    member.running = None
    assert member.receive(signed(SAVE)) == []


def test_answers_that_were_not_asked_for_do_not_count(member: Member) -> None:
    member.receive(
        signed(replace(SAVE, answers=True)), signed(replace(SAVE, answers=True, serial=7))
    )
    assert member.channel._answers == {}
    assert member.handled == []


@pytest.fixture
def gang() -> Iterator[list[Member]]:
    """Three members on loopback.

    The first two are numbers 0 and 1, whatever their own identity says.
    """
    probes = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(3)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    members, stop, threads = [Member(addresses) for _ in addresses], threading.Event(), []
    for number, member in enumerate(members):
        member.channel.number = number
        member.channel.open()
        cast("socket.socket", member.channel._socket).settimeout(0.01)

        def serve(channel: PeerChannel = member.channel) -> None:
            while not stop.is_set():
                channel.receive_some()

        thread = threading.Thread(target=serve)
        threads.append(thread)
        thread.start()
    yield members
    stop.set()
    for thread in threads:
        thread.join()
    for member in members:
        cast("socket.socket", member.channel._socket).close()


def ask(member: Member, until_s: float) -> list[int]:
    """Ask all peers, and return those that did not answer."""
    silent: list[int] = []
    done = threading.Event()

    def end(numbers: Sequence[int]) -> None:
        silent.extend(numbers)
        done.set()

    member.channel.ask("save", ROUND, lambda: {"in": 0.5}, until_s, end)
    assert done.wait(10)
    return silent


def test_all_peers_answer(gang: list[Member]) -> None:
    assert ask(gang[0], 5) == []
    assert [member.handled for member in gang] == [[], [SAVE], [SAVE]]


def test_peer_of_another_round_does_not_answer(gang: list[Member]) -> None:
    gang[2].running = IncarnationKey(1, 2)
    assert ask(gang[0], 0.3) == [2]


def test_flood_of_forged_datagrams_costs_little_and_a_peer_still_gets_through(
    gang: list[Member],
) -> None:
    address = cast("socket.socket", gang[1].channel._socket).getsockname()
    forged, stop = signed(SAVE, key=OTHER_KEY), threading.Event()
    sent = [0]

    def flood() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            while not stop.is_set():
                sender.sendto(forged, address)
                sent[0] += 1

    received = [0]
    receive = gang[1].channel._receive

    def count(data: bytes, source: tuple[str, int]) -> None:
        received[0] += 1
        receive(data, source)

    gang[1].channel._receive = count  # type: ignore[method-assign,assignment]
    flooding = threading.Thread(target=flood)
    memory_kb, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    flooding.start()
    try:
        assert ask(gang[0], 5) == []
    finally:
        time.sleep(0.3)
        stop.set()
        flooding.join()
    lasted_s = time.monotonic() - began
    assert sent[0] > received[0] / 2, "the flood was one"
    assert received[0] <= WINDOW_MAX * (lasted_s / WINDOW_S + 2)
    assert gang[1].handled == [SAVE]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb < 20_000


def test_port_in_use_is_awaited() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        member = Member(["", "", f"127.0.0.1:{other.getsockname()[1]}"])
        opening = threading.Thread(target=member.channel.open)
        opening.start()
        opening.join(0.2)
        assert opening.is_alive()
    opening.join(10)
    assert not opening.is_alive()
    cast("socket.socket", member.channel._socket).close()
