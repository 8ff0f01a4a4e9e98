"""When all members are asked to save, and how long an agent waits for its program to finish.

A *notice* says that a VM will be given up. The agent that receives it asks its peers to save at the
same *moment* as its own program. A *round* is one common start of all members, of which `ROUND` is
the running one. The agent reports the notice, with the peers that did not answer, so that a
*directive*, an order in the VM's metadata, asks those. All requests of a round are numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainmaster.agent.channel.datagrams import Datagram
from trainmaster.agent.control.saving import (
    AGAIN_S,
    ASK_S,
    CATCH_AGAIN_S,
    FINISH_S,
    LATE_S,
    MOMENT_S,
    Saving,
)
from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective

GRACE_S = 25.0
ROUND, NEXT = IncarnationKey(1, 3), IncarnationKey(1, 4)


@dataclass
class Gang:
    """One agent's `Saving`, with a clock, timers, and a channel that the test answers for."""

    mode: str = "gang"
    now: float = 1_000.0
    catches: bool = True
    """Whether the program catches the signal."""
    facts: list[tuple[float, str]] = field(default_factory=list)
    """What the agent did, and how many seconds after the start: "saving" is a change of its state,
    and "asked" the request to the program.
    """
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    """The last request to the peers: `seconds` computes its times, and `done` ends it."""

    def __post_init__(self) -> None:
        self.program = SimpleNamespace(notify=lambda number: self.note(f"notify {number.name}"))
        self.launcher = SimpleNamespace(
            is_running=True,
            request_save=self.ask_program,
            show_notice=lambda: None,
            prepare_save=lambda: self.catches,
        )
        self.run_state = SimpleNamespace(
            last_started=ROUND, desired=None, report_notice=self.report
        )
        config = SimpleNamespace(
            saves_together=self.mode == "gang",
            save_on_notice=self.mode,
            checkpoint_signal=SimpleNamespace(name="SIGUSR1"),
            grace_s=GRACE_S,
        )
        clock = SimpleNamespace(monotonic_s=lambda: self.now, now_s=lambda: self.now)
        inbox = SimpleNamespace(post_later=self.post_later, clock=clock)
        self.saving = Saving(
            cast("Any", config),
            cast("Any", inbox),
            cast("Any", SimpleNamespace(log=lambda text: None)),
            cast("Any", self.launcher),
            cast("Any", self.run_state),
            cast(
                "Any",
                SimpleNamespace(
                    on=lambda kind, handler: setattr(self, "receive", handler), ask=self.ask
                ),
            ),
            enter=lambda: self.note("saving"),
        )

    def note(self, fact: str) -> None:
        self.facts.append((round(self.now - 1_000, 3), fact))

    def ask_program(self) -> str:
        self.note("asked")
        return ""

    def report(
        self, key: IncarnationKey, gives_up_s: float, number: int, silent: Sequence[int]
    ) -> None:
        self.note(
            f"notice of round {key.incarnation}, request {number}: {gives_up_s:.1f} s, no answer of"
            f" {list(silent)}"
        )

    def post_later(self, delay_s: float, handler: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_s, handler))

    def ask(
        self,
        kind: str,
        key: IncarnationKey,
        seconds: Callable[[], Mapping[str, float]],
        until_s: float,
        done: Callable[[Sequence[int]], None],
        number: int,
    ) -> None:
        assert until_s == ASK_S
        self.asked = {"seconds": seconds, "done": done, "number": number}

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= until]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now, handler = first
            handler()
        self.now = until

    def notice(self, gives_up_s: float = 25.0) -> bool:
        """Let the VM receive a notice. Return whether the agent has handled it."""
        return self.saving.request(cast("Any", self.program), gives_up_s)

    def peer_asks(
        self,
        *,
        in_s: float,
        gives_up_s: float = 25.0,
        key: IncarnationKey = ROUND,
        number: int = 1,
    ) -> None:
        """Let a peer ask for a save in `in_s` seconds. Its VM is given up in `gives_up_s`."""
        cast("Any", self).receive(
            Datagram(
                key,
                sender=0,
                kind="save",
                serial=1,
                seconds={"in": in_s, "gives_up": gives_up_s},
                number=number,
            )
        )

    def end_round(self, action: str = "hold") -> float:
        """Order the next round. Return how many seconds the agent waits for its program."""
        self.run_state.desired = ReceivedDirective(NEXT, action)
        return self.saving.patience_s


def test_agent_with_the_notice_tells_its_peers_the_rest_of_the_time_and_acts_with_them() -> None:
    gang = Gang()
    assert gang.notice()
    gang.advance(0.2)
    assert {name: round(value, 3) for name, value in gang.asked["seconds"]().items()} == {
        "in": 0.3,
        "gives_up": 24.8,
    }
    gang.asked["done"]([1])
    gang.advance(1)
    assert gang.facts == [
        (0.2, "notice of round 3, request 1: 24.8 s, no answer of [1]"),
        (MOMENT_S, "saving"),
        (MOMENT_S, "asked"),
    ]
    assert gang.saving.was_asked(ROUND)
    assert not gang.saving.was_asked(NEXT)


def test_peer_acts_at_the_moment_that_it_is_told_and_once() -> None:
    gang = Gang()
    for _ in range(3):
        gang.peer_asks(in_s=0.4)
    gang.advance(5)
    gang.peer_asks(in_s=0.4)
    gang.advance(5)
    assert gang.facts == [(0.4, "saving"), (0.4, "asked")]


def test_of_two_notices_the_first_moment_counts_in_any_order() -> None:
    for first, second in ((0.5, 0.2), (0.2, 0.5)):
        gang = Gang()
        gang.peer_asks(in_s=first)
        gang.peer_asks(in_s=second)
        gang.advance(1)
        assert gang.facts == [(0.2, "saving"), (0.2, "asked")]


@pytest.mark.parametrize("in_s", [-5.0, 1e9])
def test_moment_that_a_peer_invents_is_at_most_half_a_second_away(in_s: float) -> None:
    gang = Gang()
    gang.peer_asks(in_s=in_s)
    gang.advance(MOMENT_S)
    assert gang.saving.was_asked(ROUND)


def test_datagram_and_directive_of_another_round_ask_for_nothing() -> None:
    gang = Gang()
    gang.peer_asks(in_s=0.1, key=NEXT)
    gang.saving.on_directive(ReceivedDirective(NEXT, "save", save_number=1, until=2e9))
    gang.saving.on_directive(ReceivedDirective(ROUND, "run"))
    gang.advance(5)
    assert gang.facts == []


def test_directive_asks_at_once() -> None:
    gang = Gang()
    gang.saving.on_directive(ReceivedDirective(ROUND, "save", save_number=1, until=2e9))
    gang.advance(0)
    assert gang.facts == [(0, "saving"), (0, "asked")]


def test_program_that_ended_before_the_moment_was_not_asked() -> None:
    gang = Gang()
    gang.notice()
    gang.launcher.is_running = False
    gang.advance(5)
    assert not gang.saving.was_asked(ROUND)
    assert gang.facts == []


def test_later_request_asks_again_and_an_earlier_one_that_comes_late_does_not() -> None:
    gang = Gang()
    gang.peer_asks(in_s=0.1, number=2)
    gang.advance(1)
    for number, times_asked in ((2, 1), (1, 1), (3, 2), (2, 2)):
        gang.peer_asks(in_s=0.1, number=number)
        gang.advance(1)
        assert [fact for _, fact in gang.facts].count("asked") == times_asked
    assert gang.saving.was_asked(ROUND)


def test_notice_soon_after_a_request_joins_it_and_a_later_one_has_the_next_number() -> None:
    gang = Gang()
    gang.peer_asks(in_s=0.1, number=4)
    gang.advance(AGAIN_S)
    gang.notice()
    assert gang.asked["number"] == 4
    gang.advance(1)
    assert [fact for _, fact in gang.facts].count("asked") == 1
    gang.notice()
    assert gang.asked["number"] == 5
    gang.advance(1)
    assert [fact for _, fact in gang.facts].count("asked") == 2


def test_later_directive_asks_a_member_again_that_a_directive_asked_before() -> None:
    """No datagram reaches this member."""
    gang = Gang()
    for number in (1, 1, 2):
        directive = ReceivedDirective(ROUND, "save", save_number=number, until=2e9)
        gang.saving.on_directive(directive)
        gang.advance(1)
    assert [fact for _, fact in gang.facts].count("asked") == 2


@pytest.mark.parametrize("left_s", [-40.0, -0.5, 3.0, GRACE_S])
def test_program_that_a_directive_asks_late_has_the_time_of_a_short_notice(left_s: float) -> None:
    """The VM with the notice may be given up already, or the clock of this one be wrong."""
    gang = Gang()
    late = ReceivedDirective(ROUND, "save", save_number=1, until=gang.now + left_s)
    gang.saving.on_directive(late)
    gang.advance(1)
    assert gang.end_round() == pytest.approx(GRACE_S - 1)
    gang.advance(GRACE_S - 1)
    assert gang.saving.patience_s == pytest.approx(0)
    assert gang.saving.was_asked(ROUND), "its end is free of charge"


def test_directive_does_not_extend_a_request_that_a_peer_has_made() -> None:
    gang = Gang()
    gang.peer_asks(in_s=0.1, gives_up_s=5)
    gang.advance(2)
    gang.saving.on_directive(ReceivedDirective(ROUND, "save", save_number=1, until=gang.now + 3))
    assert gang.end_round() == pytest.approx(3)


@pytest.mark.parametrize(
    ("gives_up_s", "expected_s"), [(25.0, 23.9), (3_000.0, FINISH_S), (1e9, FINISH_S), (-1.0, 0.0)]
)
def test_save_may_end_until_the_vm_is_given_up_but_not_for_longer_than_ten_minutes(
    gives_up_s: float, expected_s: float
) -> None:
    gang = Gang()
    gang.peer_asks(in_s=0.1, gives_up_s=gives_up_s)
    gang.advance(1.1)
    assert gang.end_round() == pytest.approx(expected_s)
    gang.advance(expected_s)
    assert gang.saving.patience_s == pytest.approx(0)


def test_round_that_ends_before_the_moment_waits_for_it() -> None:
    gang = Gang()
    gang.notice()
    assert MOMENT_S <= gang.end_round() < MOMENT_S + 0.5
    gang.advance(MOMENT_S)
    assert gang.saving.patience_s > 20


def test_stop_and_a_round_without_notice_do_not_wait() -> None:
    gang = Gang()
    assert gang.end_round() == 0
    gang.peer_asks(in_s=0)
    gang.advance(1)
    assert gang.end_round("stop") == 0
    assert gang.end_round() > 0


@pytest.mark.parametrize(
    ("mode", "facts"), [("replica", [(0, "saving"), (0, "notify SIGUSR1")]), ("off", [])]
)
def test_other_modes_ask_at_most_the_own_program(mode: str, facts: list[tuple[float, str]]) -> None:
    gang = Gang(mode)
    assert gang.notice()
    assert not gang.saving.request(None, 25)
    gang.advance(5)
    assert gang.facts == facts
    assert not gang.asked


@pytest.mark.parametrize("catches", [True, False])
def test_directive_asks_a_program_without_peers_only_if_it_catches_the_signal(
    *, catches: bool
) -> None:
    """The exit 0 of a program that knows no request completes the job."""
    gang = Gang("replica", catches=catches)
    gang.saving.on_directive(ReceivedDirective(ROUND, "save", save_number=1, until=2e9))
    gang.advance(1)
    assert gang.saving.was_asked(ROUND) == catches
    assert gang.facts == ([(0, "saving"), (0, "asked")] if catches else [])


GROW = ReceivedDirective(ROUND, "save", save_number=1, until=2e9, asks_peers=True)
"""The directive before a job trains on with more members: one agent asks all others to save."""


def grow(gang: Gang, number: int = 1) -> None:
    gang.run_state.desired = replace(GROW, save_number=number)
    gang.saving.on_directive(gang.run_state.desired)


def test_directive_to_grow_lets_the_agent_ask_all_members() -> None:
    gang = Gang()
    grow(gang)
    gang.asked["done"]([2])
    gang.advance(1)
    assert gang.facts == [
        (0, f"notice of round 3, request 1: {FINISH_S} s, no answer of [2]"),
        (MOMENT_S, "saving"),
        (MOMENT_S, "asked"),
    ]
    assert gang.saving.was_asked(ROUND)


@pytest.mark.parametrize("is_started", [False, True])
def test_program_that_is_not_ready_to_save_is_asked_later(*, is_started: bool) -> None:
    """The program does not run yet, or does not catch the signal yet."""
    gang = Gang(catches=not is_started)
    gang.run_state.last_started = ROUND if is_started else IncarnationKey(1, 2)
    grow(gang)
    gang.advance(2 * CATCH_AGAIN_S)
    assert (gang.asked, gang.facts) == ({}, [])
    gang.catches, gang.run_state.last_started = True, ROUND
    gang.advance(CATCH_AGAIN_S + MOMENT_S)
    assert gang.facts == [
        (3 * CATCH_AGAIN_S + MOMENT_S, "saving"),
        (3 * CATCH_AGAIN_S + MOMENT_S, "asked"),
    ]
    grow(gang)
    gang.advance(10 * CATCH_AGAIN_S)
    assert len(gang.facts) == 2, "once for a request"
    grow(gang, 2)
    gang.advance(MOMENT_S)
    assert len(gang.facts) == 4


def test_request_that_no_program_caught_ends_with_the_next_one() -> None:
    gang = Gang(catches=False)
    grow(gang, 1)
    gang.advance(2.5 * CATCH_AGAIN_S)
    grow(gang, 2)
    gang.advance(2 * CATCH_AGAIN_S)
    gang.catches = True
    gang.advance(3 * CATCH_AGAIN_S + 2 * MOMENT_S)
    assert [fact for _, fact in gang.facts] == ["saving", "asked"]
    assert gang.asked["number"] == 2


def test_directive_to_ask_all_does_nothing_if_a_peer_has_made_the_request() -> None:
    gang = Gang()
    gang.peer_asks(in_s=0.1)
    gang.advance(1)
    grow(gang)
    gang.advance(10 * CATCH_AGAIN_S)
    assert gang.asked == {}
    assert [fact for _, fact in gang.facts].count("asked") == 1


def test_save_of_a_growth_may_last_until_the_round_ends() -> None:
    gang = Gang()
    gang.run_state.desired = replace(GROW, until=gang.now + 120)
    gang.saving.on_directive(gang.run_state.desired)
    gang.advance(1)
    assert gang.end_round() == pytest.approx(119, abs=1)


def test_round_that_has_ended_does_not_grow() -> None:
    gang = Gang(catches=False)
    grow(gang)
    gang.catches, gang.run_state.desired = True, ReceivedDirective(NEXT, "hold")
    gang.advance(10 * CATCH_AGAIN_S)
    assert (gang.asked, gang.timers) == ({}, [])


@pytest.mark.parametrize("gives_up_s", [25.0, 3000.0])
def test_exit_after_a_withdrawn_notice_is_a_save_for_as_long_as_a_save_may_last(
    gives_up_s: float,
) -> None:
    """Later, the program went on after its save: its exit 0 completes the job."""
    gang = Gang()
    gang.peer_asks(in_s=0.0, gives_up_s=gives_up_s)
    gang.advance(max(FINISH_S, gives_up_s + LATE_S) - 1)
    assert gang.saving.was_asked(ROUND)
    gang.advance(2)
    assert not gang.saving.was_asked(ROUND)


def test_exit_of_a_program_that_alone_was_asked_is_a_save() -> None:
    alone = Gang(mode="replica")
    alone.notice()
    alone.advance(FINISH_S - 1)
    assert alone.saving.was_asked(ROUND)
    alone.advance(2)
    assert not alone.saving.was_asked(ROUND)


def test_program_that_is_not_to_be_asked_has_not_saved() -> None:
    alone = Gang(mode="off")
    alone.notice()
    assert not alone.saving.was_asked(ROUND)
