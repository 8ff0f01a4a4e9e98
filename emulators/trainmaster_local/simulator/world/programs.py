"""Simulated training programs: how long they train, how they end, and what their peers do then.

The simulator runs the real control plane against them, in virtual time, and draws all faults and
times from the history's seed. Their agents report each exit as a real agent would.

Synchronous training advances only while every member of the cluster takes part. When one member
goes, its peers notice within seconds and exit with an error (measured with TensorFlow and PyTorch:
0.5-5 s), and the work since the last checkpoint is lost. When training is complete, every member
exits by itself, the primary last, because it exports the model. A restarted program waits for all
of its peers before it checks whether any training is left.

Parameter servers run until they are stopped, and survive the loss of their clients. Evaluators read
checkpoints and wait for no peer. A slice with several hosts runs one program on each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trainmaster.core.model.members import is_member
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.program_ends import (
    EndCause,
    ProgramEnd,
    ProgramEnds,
    VmIncarnation,
)

Exit = dict[str, object]
"""The details of a replica-exit event."""
Member = tuple[ReplicaId, int]
"""A member of the cluster: replica and host."""

PEER_LOST: Final[Exit] = {
    "cause": "process",
    "exit_status": 1,
    "error": {"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in run"},
}
PEER_ENDS: Final[tuple[Exit | None, ...]] = (
    PEER_LOST,
    PEER_LOST,
    {"cause": "process", "exit_status": 1},
    {"cause": "process", "signal": 6},
    None,
)
"""Ends of programs whose peer has left, drawn with equal chances; None: the program hangs."""
COMPLETED: Final[Exit] = {"cause": "process", "exit_status": 0}
BUG: Final = {
    "type": "ValueError",
    "message": "x",
    "frame": "task.py:1 in f",
    "own_frame": "task.py:1 in f",
}
IO_ERROR: Final = {
    "type": "OSError",
    "message": "x",
    "frame": "task.py:2 in g",
    "own_frame": "task.py:2 in g",
}
FAILURES: Final[tuple[Exit, ...]] = (
    {"cause": "process", "exit_status": 1},
    {"cause": "process", "exit_status": 1, "error": BUG},
    {"cause": "process", "exit_status": 1, "error": IO_ERROR},
    {"cause": "process", "signal": 9},
    {"cause": "process", "signal": 15},
    {"cause": "process", "signal": 11},
    {"cause": "process", "exit_status": 134},
    {"cause": "process", "exit_status": 137},
)
PERMANENT_FAILURES: Final[tuple[Exit, ...]] = (
    {"cause": "process", "exit_status": 2},
    {"cause": "process", "signal": 9, "out_of_memory": True},
)
PERMANENT_SHARE: Final = 0.06
"""Share of the failures that no other attempt can mend."""

# Shortest and longest time, in virtual seconds
START_S: Final = (1.0, 5.0)
"""From the start of a program until it is ready to train."""
PEER_LOSS_NOTICED_S: Final = (0.5, 5.0)
"""From the end of a member until its peers exit."""
EXIT_S: Final = (0.0, 2.0)
"""From the end of training until a program exits."""
EXPORT_S: Final = (0.0, 20.0)
"""From the end of training until the primary exits, the replica whose exit 0 ends the job."""
FAILURE_MIN_S: Final = 0.2
"""Shortest time from the start of a program to a failure of its own."""
ALONE_SHARE: Final = 0.5
"""Shortest time that a program without peers works, as a share of the training's duration."""


class MixedRoundsError(AssertionError):
    """Invariant F1 is violated: a program of a round (one common start of all members) was started
    while a program of another round ran.
    """


@dataclass(eq=False, slots=True)
class Program:
    """One incarnation of a replica on one host."""

    replica_id: ReplicaId
    host: int
    vm_incarnation: VmIncarnation
    on_exit: Callable[[Exit], None]
    """Called when the program exits by itself; not when it is killed."""
    is_alive: bool = True
    is_member: bool = False
    """Whether it has joined the cluster."""

    @property
    def member(self) -> Member:
        return self.replica_id, self.host


@dataclass(slots=True)
class Training:
    """The training of one job, across all of its programs.

    A member may have two programs for a while, when a late insert created a second VM of its name.
    Only one of them takes part in a round of training.
    """

    context: Context
    plan: Plan
    duration_s: float
    """Seconds that undisturbed training takes."""
    checkpoint_s: float
    """Interval between checkpoints; 0 means that no work is ever lost."""
    is_synchronous: bool = True
    done_s: float = 0.0
    """Seconds of undisturbed training saved in the last checkpoint."""
    lost_s: float = 0.0
    """Seconds of training that were done and lost."""
    ends: ProgramEnds = field(default_factory=ProgramEnds)
    """The real causes of its programs' ends."""
    _size: int = field(init=False)
    _primary: ReplicaId = field(init=False)
    _alive: list[Program] = field(default_factory=list)
    _waiting_or_training: list[Program] = field(default_factory=list)
    """Programs that have joined the cluster."""
    _cluster: tuple[Program, ...] = ()
    """The programs that train together now, or did last."""
    _training_since: float | None = None
    """Virtual time at which the cluster began to train; None: it does not."""
    _round: int = 0
    """Number of times that a cluster has begun to train."""

    def __post_init__(self) -> None:
        self._primary = self.plan.primary
        cluster = [group for group in self.plan.groups if group.task_type is not TaskType.EVALUATOR]
        self._size = sum(group.count * group.hosts for group in cluster)
        """Programs of a complete cluster."""

    def start(
        self,
        replica_id: ReplicaId,
        host: int,
        vm_incarnation: VmIncarnation,
        on_exit: Callable[[Exit], None],
    ) -> Program:
        """Start a program. It joins the cluster later, and may be drawn to fail at some moment."""
        program = Program(replica_id, host, vm_incarnation, on_exit)
        context = self.context
        self._check_round(program)
        self._alive.append(program)
        if context.chance(context.faults.fail):
            exits = PERMANENT_FAILURES if context.chance(PERMANENT_SHARE) else FAILURES
            failure = exits[int(context.rng.random() * len(exits))]
            within = (FAILURE_MIN_S, self.duration_s)
            self._plan_exit(program, within, failure, EndCause.FAILED)
        context.scheduler.after(context.between(*START_S), lambda: self._join(program))
        return program

    def kill(self, program: Program) -> None:
        """End the program from outside: a signal, or the loss of its VM. Only its peers'
        connections notice.
        """
        if program.is_alive:
            self._end(program, EndCause.KILLED)

    def checkpoint_and_exit(self, program: Program) -> None:
        """Let the program save a checkpoint before it exits, so that no work is lost."""
        if program.is_alive and self._training_since is not None and program in self._cluster:
            self.done_s += self.context.now - self._training_since
            self._training_since = self.context.now
        self._exit(program, COMPLETED, EndCause.COMPLETED)

    def _join(self, program: Program) -> None:
        """Let the program join its cluster, which trains as soon as it is complete; or let it work
        alone, if it needs no peers.
        """
        if not program.is_alive:
            return
        works_alone = program.replica_id.task_type is TaskType.EVALUATOR or not self.is_synchronous
        if works_alone:
            if program.replica_id.task_type is not TaskType.PS:
                within = (ALONE_SHARE * self.duration_s, self.duration_s)
                self._plan_exit(program, within, COMPLETED, EndCause.COMPLETED)
            return
        program.is_member = True
        self._waiting_or_training.append(program)
        members = {peer.member: peer for peer in self._waiting_or_training}
        if self._training_since is None and len(members) == self._size:
            self._cluster = tuple(members.values())
            self._training_since = self.context.now
            self._round += 1
            this_round = self._round
            self.context.scheduler.after(
                self.duration_s - self.done_s, lambda: self._finish(this_round)
            )

    def _finish(self, training_round: int) -> None:
        """End training, unless the cluster that was to finish now has fallen apart meanwhile."""
        if training_round != self._round or self._training_since is None:
            return
        self.done_s = self.duration_s
        self._training_since = None
        for program in self._cluster:
            if program.replica_id.task_type is not TaskType.PS:
                self._remove_member(program)
                within = EXPORT_S if program.replica_id == self._primary else EXIT_S
                self._plan_exit(program, within, COMPLETED, EndCause.COMPLETED)

    def _plan_exit(
        self, program: Program, within: tuple[float, float], exit_: Exit, cause: EndCause
    ) -> None:
        self.context.scheduler.after(
            self.context.between(*within), lambda: self._exit(program, exit_, cause)
        )

    def _exit(self, program: Program, exit_: Exit, cause: EndCause) -> None:
        if program.is_alive:
            self._end(program, cause)
            program.on_exit(exit_)

    def _check_round(self, program: Program) -> None:
        """Raise MixedRoundsError if a program of another round still runs (F1)."""
        if not is_member(self.plan, program.replica_id):
            return
        for other in self._alive:
            _, *other_round = other.vm_incarnation  # without the VM: attempt and incarnation
            _, *own_round = program.vm_incarnation
            if is_member(self.plan, other.replica_id) and other_round != own_round:
                raise MixedRoundsError(f"F1: {program} starts beside {other}")

    def _end(self, program: Program, cause: EndCause) -> None:
        program.is_alive = False
        self._alive.remove(program)
        self.ends.add(ProgramEnd(program.replica_id, program.vm_incarnation, cause))
        self._leave(program)

    def _leave(self, program: Program) -> None:
        """Take a program out of the cluster.

        If the cluster was training, the work since the last checkpoint is lost, and its other
        members fail soon.
        """
        if not program.is_member:
            return
        self._remove_member(program)
        if self._training_since is None or program not in self._cluster:
            return
        reached = self.done_s + (self.context.now - self._training_since)
        self._training_since = None
        last_checkpoint = reached - (reached % self.checkpoint_s) if self.checkpoint_s else reached
        saved = max(last_checkpoint, self.done_s)
        self.lost_s += reached - saved
        self.done_s = saved
        for peer in self._cluster:
            if peer.is_member and peer.replica_id.task_type is not TaskType.PS:
                self._remove_member(peer)
                exit_ = self.context.rng.choice(PEER_ENDS)
                if exit_ is not None:
                    self._plan_exit(peer, PEER_LOSS_NOTICED_S, exit_, EndCause.PEER)

    def _remove_member(self, program: Program) -> None:
        program.is_member = False
        self._waiting_or_training.remove(program)
