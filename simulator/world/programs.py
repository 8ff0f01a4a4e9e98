"""The programs: how long they train, what kills them, and what their peers do then.

Synchronous training steps only while every member of the cluster takes part. When one goes, the others notice within
seconds and die of it (measured with TensorFlow and PyTorch: 0.5-5 s), and all that was done since the last checkpoint
is lost. When all is done each ends for itself, the primary last: it still exports what was trained. Whoever begins anew
waits for all of its peers before it looks whether anything is left to do.

Parameter servers serve until they are stopped, and survive their clients. Evaluators read checkpoints, and wait for
nobody. A slice of several hosts runs one program on each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from shared.core.model.job import Plan
from shared.core.model.replica_id import ReplicaId, TaskType
from simulator.world.context import Context

Ending = dict[str, object]
Member = tuple[ReplicaId, int]
"""Of the cluster: a host of a replica's machine."""
IncarnationRef = tuple[str, int, int]
"""The machine, and the attempt and incarnation that it incarnations."""

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

NOTICED_S: Final = (0.5, 5.0)
END_S: Final = (0.0, 2.0)
EXPORT_S: Final = (0.0, 20.0)


class MixedSliceError(AssertionError):
    """Hosts of one slice met in different incarnations."""


@dataclass(eq=False, slots=True)
class Program:
    """One incarnation of a replica on one host. `ended` is told how it ended, unless it was ended from outside."""

    replica_id: ReplicaId
    host: int
    incarnation_key: IncarnationRef
    ended: Callable[[Ending], None]
    is_alive: bool = True
    is_up: bool = False

    @property
    def member(self) -> Member:
        return self.replica_id, self.host


@dataclass(slots=True)
class Training:
    """`done_s`: seconds of undisturbed training behind the last checkpoint. `lost_s`: done and thrown away.

    A member may have two programs for a while, where a late insert made a second VM of its name: only one of them takes
    part in a round.
    """

    context: Context
    plan: Plan
    duration_s: float
    checkpoint_s: float
    is_synchronous: bool = True
    done_s: float = 0.0
    lost_s: float = 0.0
    incarnations: int = 0
    _size: int = field(init=False)
    _primary: ReplicaId = field(init=False)
    _up: list[Program] = field(default_factory=list)
    _crew: tuple[Program, ...] = ()
    _stepping_since: float | None = None
    _round: int = 0

    def __post_init__(self) -> None:
        self._primary = self.plan.primary
        cluster = [group for group in self.plan.groups if group.task_type is not TaskType.EVALUATOR]
        self._size = sum(group.count * group.hosts for group in cluster)

    def start(
        self, replica_id: ReplicaId, host: int, incarnation_key: IncarnationRef, ended: Callable[[Ending], None]
    ) -> Program:
        program = Program(replica_id, host, incarnation_key, ended)
        context = self.context
        self.incarnations += 1
        if context.chance(context.faults.fail):
            endings = PERMANENT if context.chance(PERMANENT_SHARE) else FAILURES
            failure = endings[int(context.rng.random() * len(endings))]
            self._ends(program, (0.2, self.duration_s), failure)
        context.scheduler.after(context.between(1, 5), lambda: self._join(program))
        return program

    def kill(self, program: Program) -> None:
        """From outside: a signal, or its VM is gone. Says nothing to anybody but its peers' sockets."""
        if program.is_alive:
            program.is_alive = False
            self._leave(program)

    def save_and_end(self, program: Program) -> None:
        """It was asked to save: nothing that was done until now is lost."""
        if program.is_alive and self._stepping_since is not None and program in self._crew:
            self.done_s += self.context.now - self._stepping_since
            self._stepping_since = self.context.now
        self._end(program, DONE)

    def _join(self, program: Program) -> None:
        if not program.is_alive:
            return
        if program.replica_id.task_type is TaskType.EVALUATOR or not self.is_synchronous:
            if program.replica_id.task_type is not TaskType.PS:
                self._ends(program, (0.5 * self.duration_s, self.duration_s), DONE)
            return
        program.is_up = True
        self._up.append(program)
        crew = {each.member: each for each in self._up}
        if self._stepping_since is None and len(crew) == self._size:
            self._crew = tuple(crew.values())
            _check_lives(self._crew)
            self._stepping_since = self.context.now
            self._round += 1
            this = self._round
            self.context.scheduler.after(self.duration_s - self.done_s, lambda: self._finish(this))

    def _finish(self, nth: int) -> None:
        if nth != self._round or self._stepping_since is None:
            return
        self.done_s, self._stepping_since = self.duration_s, None
        for program in self._crew:
            if program.replica_id.task_type is not TaskType.PS:
                program.is_up = False
                self._up.remove(program)
                self._ends(program, EXPORT_S if program.replica_id == self._primary else END_S, DONE)

    def _ends(self, program: Program, within: tuple[float, float], how: Ending) -> None:
        self.context.scheduler.after(self.context.between(*within), lambda: self._end(program, how))

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
            if peer.is_up and peer.replica_id.task_type is not TaskType.PS:
                peer.is_up = False  # what it is part of is broken: it can only die of it
                self._up.remove(peer)
                self._ends(peer, NOTICED_S, PEER_GONE)


def _check_lives(crew: Iterable[Program]) -> None:
    """Hosts of one machine have the same addresses in every incarnation: who meets an old one waits in vain for the new."""
    incarnations = {(program.replica_id, program.incarnation_key[0]): program.incarnation_key for program in crew}
    for program in crew:
        if program.incarnation_key != incarnations[program.replica_id, program.incarnation_key[0]]:
            raise MixedSliceError(
                f"{program.replica_id}: host {program.host} of {program.incarnation_key} met {incarnations}"
            )
