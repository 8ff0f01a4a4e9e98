"""Two reasons to delay the start of a program: the other hosts of a TPU slice may still run the
previous one, or the directive orders a pause, because programs keep failing soon after their start.

An incarnation is one execution of the program. A directive, the order of the control plane, names
the incarnation that should run. For replicas that train together, a directive `hold` comes first,
under which all hosts report that the previous incarnation has ended. A slice that trains alone gets
no `hold`. All its hosts receive the directive at about the same time, and each stops its running
program. A host whose program failed has nothing to stop. If it started the next one at once, that
program would meet programs of the previous incarnation on the other hosts, because all incarnations
use the same addresses and ports. The host therefore waits::

    host 0   ──incarnation 1──✗         ·······························──incarnation 2──►
    host 1   ──incarnation 1──────────── SIGTERM ≤ grace_s SIGKILL ····──incarnation 2──►
                             directive received ◄──── wait ────►
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective, VmConfig

FIRST = IncarnationKey(attempt=1, incarnation=1)  # no program ran before it
DIRECTIVE_SKEW_MAX_S = 5.0
"""How far apart in time the hosts of a slice receive a directive, with a margin. An estimate."""


class StartDelay:
    """Computes how long the next start must wait.

    The wait for the other hosts begins with the first directive for an incarnation, and the pause
    with the directive that orders it. Both may pass at the same time.
    """

    def __init__(self, config: VmConfig, clock: Callable[[], float]) -> None:
        """`clock`: returns seconds that never go back."""
        self._peers_s = 0.0
        """The longest time that the other hosts need to stop their programs."""
        if config.hosts > 1:
            self._peers_s = config.grace_s + DIRECTIVE_SKEW_MAX_S
        self._clock = clock
        self._key: IncarnationKey | None = None
        """The incarnation of the latest directive."""
        self._pause_s = 0.0
        """The pause of the latest directive."""
        self._peers_stopped_at = 0.0
        """When the other hosts have certainly stopped their programs, by `clock`."""
        self._pause_over_at = 0.0
        """When the pause is over, by `clock`."""

    def on_directive(self, directive: ReceivedDirective) -> None:
        """Begin the waits of an incarnation with its first directive.

        A later one that changes the pause begins it again; a repeated one changes nothing.
        """
        is_new = directive.key != self._key
        if is_new:
            peers_s = 0.0 if directive.key == FIRST else self._peers_s
            self._peers_stopped_at = self._clock() + peers_s
        if is_new or directive.pause_s != self._pause_s:
            self._pause_over_at = self._clock() + directive.pause_s
        self._key = directive.key
        self._pause_s = directive.pause_s

    def remaining_s(self, *, is_after_hold: bool) -> float:
        """Seconds until the start is allowed; 0 if it is.

        `is_after_hold`: all hosts have reported that they stopped the previous incarnation.
        """
        if is_after_hold:
            self._peers_stopped_at = 0.0
        return max(0.0, max(self._peers_stopped_at, self._pause_over_at) - self._clock())

    @property
    def purpose(self) -> str:
        """What the start waits for, in words."""
        if self._peers_stopped_at >= self._pause_over_at:
            return "until the other hosts of the slice have stopped the previous incarnation"
        return "before the restart, because the program failed soon after its start"
