"""The programs: how long they train, what kills them, and what their peers do then.

Synchronous training steps only while every replica takes part. When one goes, the others notice within seconds and die
of it (measured with TensorFlow and PyTorch: 0.5-5 s), and all that was done since the last checkpoint is lost. When
all is done each ends for itself, the primary last: it still exports what was trained. Whoever begins anew waits for all
of its peers before it looks whether anything is left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shared.core.seats import Seat
from simulator.context import Context

Ending = dict[str, object]

PEER_GONE: Final[Ending] = {
    "cause": "process",
    "exit_status": 1,
    "error": {"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in run"},
}
DONE: Final[Ending] = {"cause": "process", "exit_status": 0}
FAILURES: Final[tuple[Ending, ...]] = (
    {"cause": "process", "exit_status": 1},
    {"cause": "process", "exit_status": 1, "error": {"type": "ValueError", "message": "x", "frame": "task.py:1 in f"}},
    {"cause": "process", "exit_status": 1, "error": {"type": "OSError", "message": "x", "frame": "task.py:2 in g"}},
    {"cause": "process", "signal": 9},
    {"cause": "process", "signal": 15},
    {"cause": "process", "signal": 11},
    {"cause": "process", "exit_status": 134},
    {"cause": "process", "exit_status": 137},
)
PERMANENT: Final[tuple[Ending, ...]] = (
    {"cause": "process", "exit_status": 2},
    {"cause": "process", "signal": 9, "out_of_memory": True},
)
PERMANENT_SHARE: Final = 0.06

END_S: Final = (0.0, 2.0)
EXPORT_S: Final = (0.0, 20.0)


@dataclass(eq=False, slots=True)
class Program:
    """One life of a replica. `ended` is told how it ended, unless it was ended from outside."""

    seat: Seat
    ended: Callable[[Ending], None]
    is_alive: bool = True
    is_up: bool = False


@dataclass(slots=True)
class Training:
    """`done_s`: seconds of undisturbed training behind the last checkpoint. `lost_s`: done and thrown away.

    A seat may have two programs for a while, where a late insert made a second VM of its name: only one of them takes
    part in a round.
    """

    context: Context
    seats: tuple[Seat, ...]
    duration_s: float
    checkpoint_s: float
    primary: Seat
    is_synchronous: bool = True
    done_s: float = 0.0
    lost_s: float = 0.0
    lives: int = 0
    _up: list[Program] = field(default_factory=list)
    _crew: tuple[Program, ...] = ()
    _stepping_since: float | None = None
    _round: int = 0

    def start(self, seat: Seat, ended: Callable[[Ending], None]) -> Program:
        program = Program(seat, ended)
        context = self.context
        self.lives += 1
        if context.chance(context.faults.fail):
            endings = PERMANENT if context.chance(PERMANENT_SHARE) else FAILURES
            failure = endings[int(context.rng.random() * len(endings))]
            context.scheduler.after(context.between(0.2, self.duration_s), lambda: self._end(program, failure))
        context.scheduler.after(context.between(1, 5), lambda: self._join(program))
        return program

    def kill(self, program: Program) -> None:
        """From outside: a signal, or its VM is gone. Says nothing to anybody but its peers' sockets."""
        if program.is_alive:
            program.is_alive = False
            self._leave(program)

    def _join(self, program: Program) -> None:
        if not program.is_alive:
            return
        program.is_up = True
        self._up.append(program)
        if not self.is_synchronous:
            remaining_s = self.context.between(0.5, 1.0) * self.duration_s
            self.context.scheduler.after(remaining_s, lambda: self._end(program, DONE))
            return
        crew = {each.seat: each for each in self._up}
        if self._stepping_since is None and len(crew) == len(self.seats):
            self._crew = tuple(crew.values())
            self._stepping_since = self.context.now
            self._round += 1
            this = self._round
            self.context.scheduler.after(self.duration_s - self.done_s, lambda: self._finish(this))

    def _finish(self, nth: int) -> None:
        if nth != self._round or self._stepping_since is None:
            return
        self.done_s, self._stepping_since = self.duration_s, None
        for program in self._crew:
            program.is_up = False
            self._up.remove(program)
            ends_s = EXPORT_S if program.seat == self.primary else END_S
            self.context.scheduler.after(
                self.context.between(*ends_s),
                lambda program=program: self._end(program, DONE),  # type: ignore[misc]
            )

    def _end(self, program: Program, how: Ending) -> None:
        if program.is_alive:
            program.is_alive = False
            self._leave(program)
            program.ended(how)

    def _leave(self, program: Program) -> None:
        if not program.is_up:
            return
        program.is_up = False
        self._up.remove(program)
        if self._stepping_since is None or program not in self._crew:
            return
        since, self._stepping_since = self._stepping_since, None
        reached = self.done_s + (self.context.now - since)
        kept = reached - (reached % self.checkpoint_s) if self.checkpoint_s else reached
        self.lost_s += reached - max(kept, self.done_s)
        self.done_s = max(kept, self.done_s)
        for peer in self._crew:
            if peer.is_up:
                peer.is_up = False  # what it is part of is broken: it can only die of it
                self._up.remove(peer)
                self.context.scheduler.after(self.context.between(0.5, 5), lambda peer=peer: self._end(peer, PEER_GONE))  # type: ignore[misc]
