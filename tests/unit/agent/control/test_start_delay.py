"""How long an agent waits before it starts a program: until the other hosts of its slice have ended
theirs, and for a pause that its directive orders.

A slice is a TPU machine of several hosts, each with an agent of its own. An incarnation is one
execution of a program, within an attempt of the whole job.
"""

from __future__ import annotations

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.control.start_delay import StartDelay
from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective, SliceHost, VmConfig

SLICE = agent_identity(SliceHost(1, addresses=()), hosts=2, grace_s=25).config
VM = agent_identity(grace_s=25).config
PEERS_S = 25 + 5
"""Longest time that other hosts need: `grace_s` of their programs, and 5 s because they receive the
directive later.
"""


class Delay:
    """A delay whose time, in seconds, a test sets."""

    def __init__(self, config: VmConfig) -> None:
        self.now = 100.0
        self._delay = StartDelay(config, lambda: self.now)

    def after(
        self, attempt: int, incarnation: int, pause_s: float = 0.0, *, is_after_hold: bool = False
    ) -> float:
        """Return the delay that remains after this directive."""
        self._delay.on_directive(
            ReceivedDirective(
                IncarnationKey(attempt, incarnation), "run", slices=(), pause_s=pause_s
            )
        )
        return self._delay.remaining_s(is_after_hold=is_after_hold)

    @property
    def purpose(self) -> str:
        return self._delay.purpose


def test_delay_of_a_slice_counts_from_the_first_directive_for_an_incarnation() -> None:
    delay = Delay(SLICE)
    assert delay.after(1, 1) == 0, "no program ran before the first incarnation"
    assert delay.after(1, 2) == PEERS_S
    delay.now = 120.0
    assert delay.after(1, 2) == PEERS_S - 20, (
        "first held, now to be run: the hold already ended the older programs"
    )
    delay.now = 131.0
    assert delay.after(1, 2) == 0
    assert delay.after(2, 1) == PEERS_S


def test_delay_of_a_vm_is_the_pause_that_its_directive_orders() -> None:
    delay = Delay(VM)
    assert delay.after(1, 2) == 0
    assert delay.after(1, 3, pause_s=8) == 8
    delay.now = 107.0
    assert delay.after(1, 3, pause_s=8) == 1


def test_slice_does_not_wait_for_hosts_that_have_reported_their_stop() -> None:
    delay = Delay(SLICE)
    assert delay.after(1, 2, is_after_hold=True) == 0
    assert delay.after(1, 3, pause_s=8, is_after_hold=True) == 8


def test_pause_that_is_ordered_after_a_hold_counts_from_its_directive() -> None:
    delay = Delay(VM)
    assert delay.after(1, 2) == 0
    delay.now = 120.0
    assert delay.after(1, 2, pause_s=8) == 8
    delay.now = 127.0
    assert delay.after(1, 2, pause_s=8) == 1, "the directive is repeated"


def test_longer_delay_counts_and_gives_the_purpose() -> None:
    delay = Delay(SLICE)
    assert delay.after(1, 2, pause_s=8) == PEERS_S
    assert "other hosts" in delay.purpose
    assert delay.after(1, 3, pause_s=64) == 64
    assert "failed soon" in delay.purpose
