"""Training programs, and the fact why each of them ended.

Members of a coupled cluster join it, train while all of them take part, and exit 0 by themselves,
the primary last. When one goes, the others fail as their framework does, or hang. Work since the
last checkpoint is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.explorer.causes import DONE, EXITS, IGNORES, OWN, PEER, SAVED, STALLED, STOPPED, VM
from tests.explorer.processes import Facts, Process
from trainmaster.core.model.replica_id import ReplicaId, TaskType

if TYPE_CHECKING:
    from tests.explorer.agent_host import AgentHost
    from tests.explorer.jobs import ExploredJob
    from tests.explorer.threads import Threads

Key = tuple[int, int]
"""Attempt and incarnation. For members of a synchronous job, the incarnation is the round."""

BUG: Final = {
    "type": "ValueError",
    "message": "x",
    "frame": "task.py:1 in f",
    "own_frame": "task.py:1 in f",
}
FAILURES: Final[tuple[Facts, ...]] = (
    {"exit_status": 1},
    {"exit_status": 1, "error": BUG},
    {"exit_status": 1, "error": {**BUG, "type": "OSError", "message": "disk"}},
    {"signal": 11},
    {"signal": 9},
    {"exit_status": 137},
    {"exit_status": 143},
    {"exit_status": 134},
    {"exit_status": 3},
)
PEER_LOST: Final[Facts] = {
    "exit_status": 1,
    "error": {"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in run"},
}
REACTIONS: Final[dict[str, Facts | None]] = {
    "peer": PEER_LOST,  # TensorFlow, gloo
    "bare": {"exit_status": 1},  # a shell script around the program
    "abort": {"signal": 6},  # JAX's coordination service, NCCL's watchdog
    # torchrun: the agent skips the launcher's own traceback, so the worker's is left, or none
    "launcher": {
        "exit_status": 1,
        "error": {
            "type": "RuntimeError",
            "message": "Connection closed by peer",
            "frame": "reducer.py:7 in f",
        },
    },
    "hangs": None,  # a collective without a time limit
}
SILENCE: Final[Facts] = {
    "signal": 6,
    "error": {
        "type": "Aborted",
        "message": "UNAVAILABLE: … (stopped sending heartbeats):",
        "frame": "",
    },
}
"""What programs of TensorFlow and JAX see of a peer that hangs, long before its agent does."""
HEARTBEATS_S: Final = 15.0
NOTICED_TOGETHER_S: Final = (0.0, 1.5)
LAUNCHER_S: Final = (0.02, 0.4)
"""How long a launcher runs on after its worker: torchrun looks every tenth of a second."""
JOIN_S: Final = (1.0, 5.0)
SAVE_S: Final = (0.5, 20.0)
LONG_SAVE_S: Final = (20.0, 400.0)
SAVE_ALONE_S: Final = (0.5, 8.0)
CATCHES: Final = 0.7
"""Share of the programs that catch the signal that asks them to save."""
SAVES: Final = 0.85
"""Share of those that exit when they have saved. The others go on."""


@dataclass(eq=False, slots=True)
class Program:
    """One incarnation on one machine."""

    agent: AgentHost
    """The machine that it runs on, with its agent."""
    key: Key
    started_s: float
    job: ExploredJob
    tenure: int = 1
    """Number of the time in which its job holds the machine set."""
    process: Process = field(init=False)
    catches: bool = False
    """Whether it catches the signal that asks it to save."""
    ended_s: float | None = None
    cause: str = ""
    """Why it ended, in fact."""
    facts: Facts | None = None
    """What its agent saw of that."""
    root: Program | None = None
    """The peer whose end broke it."""
    without: tuple[int, ...] = ()
    """Ranks of the members that are missing in its round, as it was told."""
    was_asked: bool = False
    """Whether all members were asked to save while it ran."""
    asked_s: float = 0.0
    """When all members were asked to save while it ran, at last."""
    saves_until_s: float = 0.0
    saved_s: list[float] = field(default_factory=list)
    """When it was asked to save with its peers, and did."""
    is_frozen: bool = False
    """Whether it had stopped answering its peers."""
    is_hidden: bool = False
    """Whether a directive reached the agent before it saw the end."""

    @property
    def is_alive(self) -> bool:
        return self.ended_s is None

    @property
    def replica_id(self) -> ReplicaId:
        return self.agent.vm.replica_id

    @property
    def machine(self) -> tuple[ReplicaId, int | None]:
        return self.replica_id, self.agent.host

    def __str__(self) -> str:
        host = "" if self.agent.host is None else f"/{self.agent.host}"
        return f"{self.replica_id}{host}@{self.key[0]}.{self.key[1]}"


class Programs:
    """All programs that a job has started."""

    def __init__(self, job: ExploredJob) -> None:
        self._job = job
        self._world = job.world
        self.all: list[Program] = []
        self._joined: list[Program] = []
        self._training: tuple[Program, ...] = ()
        self._since_s = 0.0
        self._done_s = 0.0

    @property
    def are_training(self) -> bool:
        """Whether all members train together."""
        return bool(self._training)

    def start(
        self,
        agent: AgentHost,
        key: Key,
        without: tuple[int, ...],
        threads: Threads,
        tenure: int = 1,
    ) -> Program:
        """Start the program of an incarnation, and plan how it ends.

        `key`: attempt and incarnation; `without`: members that the round leaves out.
        """
        world = self._world
        work_s = self._job.work_s
        program = Program(agent, key, world.now_s, self._job, tenure, without=without)
        program.process = agent.process = Process(agent, program, threads)
        program.catches = world.rng.random() < CATCHES
        if self._job.reaction_to_save is not None:
            program.catches = self._job.reaction_to_save != IGNORES
        self._job.examiner.on_start(program)
        self.all.append(program)
        world.log("start", program, "on", agent.vm.instance_id)
        self._job.on_program(program)
        if world.chance(world.profile.fail):
            world.within(
                (0.2, 1.2 * work_s), self.exit, program, dict(world.rng.choice(FAILURES)), OWN
            )
        elif self._job.stall_timeout_s and world.chance(world.profile.freeze):
            world.within((1.0, work_s), self._freeze, program)
        world.within(JOIN_S, self._join, program)
        return program

    def _join(self, program: Program) -> None:
        job = self._job
        world = self._world
        task_type = program.replica_id.task_type
        if not program.is_alive:
            return
        if task_type is TaskType.EVALUATOR or not job.is_coupled:
            if task_type is not TaskType.PS and not (
                task_type is TaskType.EVALUATOR and job.evaluates_forever
            ):
                world.within(
                    (0.5 * job.work_s, job.work_s), self.exit, program, {"exit_status": 0}, DONE
                )
            return
        self._joined.append(program)
        zone = program.agent.vm.zone  # addresses are zonal: programs of different zones do not meet
        members = {
            joined.machine: joined for joined in self._joined if joined.agent.vm.zone == zone
        }
        if not self._training and len(members) == job.members - len(program.without):
            self._training = tuple(members.values())
            self._since_s = world.now_s
            world.after(job.work_s - self._done_s, self._finish, self._training)

    def _finish(self, training: tuple[Program, ...]) -> None:
        if self._training is not training:
            return
        job = self._job
        world = self._world
        self._done_s = job.work_s
        self._training = ()
        for program in training:
            self._joined.remove(program)
            if program.replica_id.task_type is not TaskType.PS:
                most_s = world.profile.export_s if program.replica_id == job.primary else 2.0
                world.within((0.0, most_s), self.exit, program, {"exit_status": 0}, DONE)

    def _freeze(self, program: Program) -> None:
        """The program stops, and nobody makes progress.

        Its peers give it up, or their agents end them all.
        """
        if program in self._training:
            training = self._interrupt()
            program.is_frozen = self._world.chance(0.5)
            for member in training:
                member.process.fall_still()
            for member in training:
                if program.is_frozen and member is not program:
                    noticed_s = HEARTBEATS_S + self._world.between(NOTICED_TOGETHER_S)
                    self._world.after(noticed_s, self.exit, member, dict(SILENCE), PEER, program)

    def exit(self, program: Program, facts: Facts, cause: str, root: Program | None = None) -> None:
        """The program exits, unless it has ended before. Its agent sees that."""
        if program.is_alive:
            program.facts = {"cause": "process", **facts}
            # A program that had hung before its agent was told to stop it has not ended by that.
            is_stopped = program.process.is_withdrawn and cause != STALLED
            self.end(program, STOPPED if is_stopped else cause, root)
            if self._job.reactions == ("launcher",):
                self._world.within(LAUNCHER_S, program.process.leave, facts)
            else:
                program.process.leave(facts)

    def save_together(self, program: Program) -> None:
        """All members are asked to save. Some exit then, some go on, and some know no signal."""
        world = self._world
        program.was_asked = True
        program.asked_s = world.now_s
        world.log("asked", program)
        is_able = program.catches and not program.process.is_still
        if is_able:
            program.saved_s.append(world.now_s)
        reaction = self._job.reaction_to_save
        exits = world.rng.random() < SAVES if reaction is None else reaction == EXITS
        if is_able and program.saves_until_s <= world.now_s and exits:
            is_long = world.chance(world.profile.long_save)
            saves_s = self._job.save_s or world.between(LONG_SAVE_S if is_long else SAVE_S)
            program.saves_until_s = world.now_s + saves_s
            world.after(saves_s, self.exit, program, {"exit_status": 0}, SAVED)

    def save_alone(self, program: Program) -> None:
        """The program is asked to save, because its VM goes."""
        is_able = program.catches and not program.process.is_still
        if is_able and self._world.rng.random() < SAVES:
            saves_s = self._job.save_s or self._world.between(SAVE_ALONE_S)
            self._world.after(saves_s, self.exit, program, {"exit_status": 0}, VM)

    def end(self, program: Program, cause: str, root: Program | None = None) -> None:
        """The program ends, with its machine or by itself."""
        program.ended_s = self._world.now_s
        program.cause = cause
        program.root = root
        self._world.log("end", program, cause, root or "")
        if program in self._joined:
            self._joined.remove(program)
        if program in self._training:
            for peer in self._interrupt():
                if peer is not program and peer.replica_id.task_type is not TaskType.PS:
                    self._break(peer, program)

    def _interrupt(self) -> tuple[Program, ...]:
        """Training cannot go on with these members. Return them."""
        training = self._training
        self._training = ()
        reached_s = self._done_s + self._world.now_s - self._since_s
        every_s = self._job.checkpoint_s
        self._done_s = max(self._done_s, reached_s - reached_s % every_s if every_s else reached_s)
        self._joined = [program for program in self._joined if program not in training]
        return training

    def _break(self, peer: Program, root: Program) -> None:
        facts = REACTIONS[self._world.rng.choice(self._job.reactions)]
        if facts is None:
            peer.process.fall_still()
        else:
            self._world.within(
                self._world.profile.noticed_s, self.exit, peer, dict(facts), PEER, root
            )
