"""One explored job: how its programs behave, what happened to its machines, and its examiner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.explorer.examiner import Examiner
from tests.explorer.programs import Program, Programs
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.world import World
    from trainmaster_local.memory.store import MemoryStore


class ExploredJob:
    """One job: what its programs do, and what happened to its machines."""

    plan: Plan

    def __init__(self, world: World, store: MemoryStore, job_id: str, kind: str) -> None:
        rng = world.rng
        profile = world.profile
        self.world, self.job_id = world, job_id
        self.work_s = world.between(profile.work_s)
        """How long a program trains until it has completed, if nothing happens."""
        self.checkpoint_s = rng.choice((0, 10, 60))
        """Time between two checkpoints; 0: one after each step."""
        self.reactions = (
            profile.reactions if rng.random() < 0.5 else (rng.choice(profile.reactions),)
        )
        """What its programs may do when a peer goes (`programs.REACTIONS`)."""
        self.is_coupled = kind in ("sync", "evaluator", "slices", "tuning") or (
            kind == "ps" and rng.random() < 0.3
        )
        """Whether its programs need each other: when one goes, the others fail or hang."""
        self.evaluates_forever = rng.random() < 0.3
        """Whether its evaluator never completes by itself."""
        self.faults: list[tuple[float, ExploredVm, str]] = []
        """When which machine failed, and how."""
        self.reaction_to_save: str | None = None
        """What its programs do when they are asked to save; None: each draws it."""
        self.save_s: float | None = None
        """How long their saves take; None: each draws it."""
        self.on_program: Callable[[Program], None] = lambda _: None
        """Called when a program starts."""
        self.programs = Programs(self)
        self.examiner = Examiner(self, store)
        self.cost = 0.0
        """What its VMs have cost, in USD: each from the beginning of a successful insert until it
        has stopped.
        """

    def accept(self, plan: Plan) -> None:
        """Learn what the platform made of the document."""
        self.plan = plan
        self.primary = plan.primary
        self.stall_timeout_s = plan.watching.stall_timeout_s or 0
        self.members = sum(
            group.count * group.hosts for group in plan.groups if group.task_type != "evaluator"
        )

    @property
    def is_synchronous(self) -> bool:
        """Whether its members run in rounds: more than one machine, no parameter server, not
        independent.
        """
        has_servers = any(group.task_type == "ps" for group in self.plan.groups)
        return self.members > 1 and not has_servers and not self.plan.restarts.independent

    def is_member(self, replica_id: ReplicaId) -> bool:
        """Whether the replica runs in rounds."""
        return self.is_synchronous and replica_id.is_in_cluster

    def note_fault(self, vm: ExploredVm, kind: str) -> None:
        self.faults.append((self.world.now_s, vm, kind))

    def note_created(self, vm: ExploredVm) -> None:
        self.examiner.on_create(vm)

    def note_taken(self, vm: ExploredVm) -> None:
        self.examiner.on_take(vm)

    def note_deleted(self, vm: ExploredVm) -> None:
        self.examiner.on_delete(vm)
