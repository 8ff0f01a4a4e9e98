"""Which programs the agents of a gang end: all of them if all are still, and none on the word of a
peer.

A gang is the members of a job that train together. A program is *still* if it has done no work for
`still_s`. The agent of the first member then asks the others whether theirs are still, too, and
tells them to end them. `stall_timeout_s` is the job's own limit for a program that prints nothing.
A round is one common start of all members, and a datagram names the one that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.channel.datagrams import Datagram
from trainmaster.agent.control.stall_watch import ASK_AGAIN_S, MOMENT_S, STALLED, STILL, StallWatch
from trainmaster.agent.control.stillness import Stillness
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import IncarnationKey

NOW: dict[str, float] = {}
"""Times of a datagram that asks for something at once."""
ROUND, OTHER = IncarnationKey(1, 3), IncarnationKey(1, 4)
FRAME = "t/task.py:7 in step"
STACKS = """\
Fatal Python error: Aborted

Current thread 0x1 (most recent call first):
  File "/t/task.py", line 7 in step
"""


class Gang:
    """Agents that exchange datagrams at once. What is still is set, not measured."""

    def __init__(self, members: int, **config: Any) -> None:
        self.now = 1_000.0
        self.asked: list[str] = []
        """Number of the member that asked, and what."""
        self.waits: list[float] = []
        """Seconds that an agent waited until it ended its program."""
        self.ended: list[int] = []
        self.unreachable: set[int] = set()
        self.handlers: list[dict[str, Callable[[Datagram], bool | None]]] = [
            {} for _ in range(members)
        ]
        self.watches = [
            self._watch(number, has_channel=members > 1, **config) for number in range(members)
        ]
        for watch in self.watches:
            program = SimpleNamespace(
                printed_at=0.0, stacks=lambda: STACKS, error_before_stacks=lambda: None
            )
            watch.start(ROUND, cast("Any", program))

    def _watch(self, number: int, *, has_channel: bool, **config: Any) -> StallWatch:
        def end_stalled(*arguments: Any) -> None:
            *_, wait_s = arguments
            self.ended.append(number)
            self.waits.append(wait_s)

        launcher: Any = SimpleNamespace(end_stalled=end_stalled)
        channel = SimpleNamespace(
            number=number,
            on=self.handlers[number].__setitem__,
            ask=lambda *asked: self._ask(number, *asked),
        )
        inbox = SimpleNamespace(
            start_thread=lambda work: work() if work.func is launcher.end_stalled else None,
            post_later=lambda *_: None,
            clock=SimpleNamespace(monotonic_s=lambda: self.now),
        )
        console = SimpleNamespace(log=lambda _: None)
        return StallWatch(
            agent_identity(**config),
            cast("Any", inbox),
            cast("Any", console),
            launcher,
            cast("Any", channel) if has_channel else None,
        )

    def _ask(
        self,
        number: int,
        kind: str,
        key: IncarnationKey,
        seconds: Callable[[], Mapping[str, float]],
        until_s: float,
        done: Callable[[Sequence[int]], None],
    ) -> None:
        self.asked.append(f"{number} {kind}")
        silent = [
            peer
            for peer in range(len(self.watches))
            if peer != number
            and (
                peer in self.unreachable
                or self.receive(peer, kind, key, number, seconds()) is False
            )
        ]
        done(silent)

    def receive(
        self,
        peer: int,
        kind: str,
        key: IncarnationKey = ROUND,
        sender: int = 0,
        seconds: Mapping[str, float] = NOW,
    ) -> bool | None:
        """Let the peer receive a datagram. Return its handler's answer; False is no answer."""
        handler = self.handlers[peer].get(kind)
        return handler(Datagram(key, sender, kind, 1, seconds=seconds)) if handler else False

    def be_still(self, *members: int) -> None:
        """Let these members be still for long enough, and their agents notice it."""
        for number in members:
            watch = self.watches[number]
            watch._stillness = Stillness(600)
            watch._stillness.still_s = 620.0
        for number in members:
            self.watches[number]._on_still(ROUND)

    @property
    def stalled(self) -> list[int]:
        """Numbers of the members whose programs hang, as their agents say."""
        return [number for number, watch in enumerate(self.watches) if watch.has_stalled(ROUND)]


def test_all_members_are_ended_once_all_are_still_and_only_the_first_one_asks() -> None:
    gang = Gang(3, still_s=600)
    gang.be_still(1, 2)
    assert (gang.asked, gang.stalled) == ([], [])
    gang.be_still(0)
    assert gang.asked == ["0 still", "0 stalled"]
    assert gang.stalled == sorted(gang.ended) == [0, 1, 2]
    assert gang.waits == [MOMENT_S] * 3, "all have stopped their programs before the first one ends"
    end = gang.watches[2].explain(ProgramExit(signal=6))
    error = {
        "type": "Still",
        "message": "still for 10 minutes",
        "frame": FRAME,
        "own_frame": FRAME,
    }
    assert (end.cause, end.error) == ("stalled", error)


@pytest.mark.parametrize("why", ["it works", "it cannot be reached", "its agent does not answer"])
def test_one_member_without_evidence_keeps_all_alive_and_is_asked_again_a_minute_later(
    why: str,
) -> None:
    gang = Gang(3, still_s=600)
    if why == "it cannot be reached":
        gang.unreachable.add(2)
    elif why == "its agent does not answer":
        gang.handlers[2].clear()
    still_members = (0, 1) if why == "it works" else (0, 1, 2)
    gang.be_still(*still_members)
    gang.now += ASK_AGAIN_S - 1
    gang.be_still(0)
    assert (gang.asked, gang.stalled) == (["0 still"], [])
    gang.now += 1
    gang.unreachable.clear()
    gang.be_still(0)
    assert gang.asked[:2] == ["0 still", "0 still"]
    assert gang.stalled == ([0, 1, 2] if why == "it cannot be reached" else [])


def test_program_of_a_job_of_one_replica_is_ended_without_a_peer() -> None:
    gang = Gang(1, still_s=600)
    gang.be_still(0)
    assert (gang.stalled, gang.ended) == ([0], [0])


def test_valid_datagram_of_a_peer_ends_no_program_that_works_or_of_another_round() -> None:
    gang = Gang(2, still_s=600)
    assert gang.receive(1, STILL) is False
    gang.receive(1, STALLED)
    gang.be_still(1)
    gang.receive(1, STALLED, OTHER)
    assert gang.stalled == []
    gang.watches[1].stop()
    gang.receive(1, STALLED)
    assert (gang.receive(1, STILL), gang.stalled) == (False, [])


@pytest.mark.parametrize(
    ("config", "stalled", "peer_silent_s", "peer_error"),
    [
        pytest.param(
            {"stall_timeout_s": 60},
            [0, 1],
            53,
            ("PeerSilent", "another member printed nothing (stallTimeout)"),
            id="printed later",
        ),
        pytest.param(
            {"stall_timeout_s": 60},
            [0, 1],
            54,
            ("Silent", "printed nothing for 54 s (stallTimeout)"),
            id="in lockstep",
        ),
        pytest.param({}, [], 60, None, id="no time"),
    ],
)
def test_peer_of_a_member_that_printed_nothing_prints_its_stacks_only_if_the_job_has_a_time(
    config: dict[str, Any],
    stalled: list[int],
    peer_silent_s: float,
    peer_error: tuple[str, str] | None,
) -> None:
    """The peer's own program counts as silent, too, from nine tenths of the time on."""
    gang = Gang(2, **config)
    cast("Any", gang.watches[1]._program).printed_at = gang.now - peer_silent_s
    for watch in gang.watches:
        watch._check_output(ROUND, cast("Any", SimpleNamespace(printed_at=0.0)))
    assert gang.stalled == stalled
    if peer_error:
        first, peer = (watch.explain(ProgramExit(signal=6)).error or {} for watch in gang.watches)
        assert first["type"] == "Silent"
        assert (peer["type"], peer["message"]) == peer_error
    gang.receive(1, STALLED)
    assert gang.stalled == stalled


def test_time_in_a_datagram_delays_no_end_for_long() -> None:
    gang = Gang(2, stall_timeout_s=60)
    gang.receive(1, STALLED, seconds={"in": 1e9})
    assert gang.waits == [MOMENT_S]


def test_quiet_is_told_from_the_third_minute_on_with_the_time_that_is_left() -> None:
    """`quiet` returns for how many seconds the program has been quiet, and how many are left."""
    gang = Gang(members=1, stall_timeout_s=600)
    (watch,) = gang.watches
    gang.now = 119
    assert watch.quiet() is None
    gang.now = 150
    assert watch.quiet() == (150, 450)
    watch.stop()
    assert watch.quiet() is None


def test_quiet_of_a_short_limit_is_told_after_half_of_it() -> None:
    gang = Gang(members=1, still_s=60)
    (watch,) = gang.watches
    assert watch.quiet() is None
    watch._stillness.still_s = 31  # type: ignore[union-attr]
    assert watch.quiet() == (31, 29)
