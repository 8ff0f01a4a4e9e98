"""One job whose faults a test chooses, in the world of the histories, with its agents, machines and
programs.

A history is jobs under drawn faults. Here the history draws no job of its own; the test gives one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tests.explorer.causes import OWN, REBOOT
from tests.explorer.cloud import ExploredVm
from tests.explorer.history import History
from tests.explorer.job_documents import job_document, slices_document
from tests.explorer.processes import Facts
from tests.explorer.profile import Profile
from tests.explorer.programs import BUG, Program
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.reconcile.steps import Create
from trainmaster.ports import CreateOutcome, NotCreated

FOREVER_S: Final = 1e9
DAY_S: Final = 86_400.0
LAST_SAVE_S: Final = 270.0
"""How long before a job's `maxCost` is used up its programs are asked to save, at most."""
FAILURE: Final[Facts] = {"exit_status": 1, "error": BUG}
WEEK: Final = {"maxRunningTime": "604800s"}


class Scripted(History):
    """A job that trains until the test ends, unless its programs are told to exit.

    `size`: the number of its replicas, or of its slices. `kind`: see `job_documents`. `reaction`:
    how the programs of the peers end when one of them is gone (`REACTIONS` in `programs`), and
    `noticed_s` how many seconds later. `faults`: fields of `Profile`.
    """

    def __init__(
        self,
        size: int = 4,
        *,
        reaction: str = "peer",
        noticed_s: float = 2.0,
        kind: str = "sync",
        scheduling: Mapping[str, Any] = WEEK,
        options: Mapping[str, Any] | None = None,
        **faults: Any,
    ) -> None:
        profile = Profile(
            "scripted",
            jobs=0,
            reactions=(reaction,),
            noticed_s=(noticed_s, noticed_s + 0.5),
            work_s=(FOREVER_S, FOREVER_S),
            **faults,
        )
        super().__init__(0, profile)
        zones = {"zones": ["us-central1-a", "us-central1-b"]}
        if kind == "slices":
            document = slices_document("j1", size, "4x4", "604800s")
        else:
            document = job_document(
                "j1", kind, size, dict(scheduling), {**zones, **(options or {})}
            )
        self.explored = self.submit("j1", kind, document)
        self.explored.is_coupled = kind in ("sync", "slices")

    def wait(self, seconds: float) -> None:
        """Let time pass, unless the job ends before."""
        until_s = self.world.now_s + seconds
        self.world.run(until_s, lambda: self.explored.examiner.ended_s is not None)
        if self.explored.examiner.ended_s is None:
            self.world.now_s = until_s

    def train(self, seconds: float = 0.0) -> None:
        """Wait until all members train together, then `seconds` more.

        Fails if they do not within an hour.
        """
        until_s = self.world.now_s + 3600
        assert self.world.run(
            until_s, lambda: self.explored.programs.are_training or self.has_ended
        ), self.story
        self.wait(seconds)

    @property
    def job(self) -> Job:
        loaded = self.store.load("j1")
        assert loaded
        return loaded.state.job

    @property
    def has_ended(self) -> bool:
        return self.explored.examiner.ended_s is not None

    @property
    def story(self) -> str:
        """The decisions, and what was violated."""
        entries = self.store.ledger("j1")
        return "\n".join(
            [
                *(f"{entry.key}: {entry.decision.text}" for entry in entries),
                *map(str, self.world.violations),
            ]
        )

    @property
    def charges(self) -> dict[str, int]:
        """Charged restarts by replica; reruns and the failure of the job by these words."""
        charges = self.explored.examiner.charges
        return dict(
            Counter(
                str(charge.replica_id) if charge.kind == "restart" else charge.kind
                for charge in charges
            )
        )

    @property
    def is_running(self) -> bool:
        return self.job.state is JobState.RUNNING

    def program(self, name: str) -> Program:
        """Return the program of the replica that runs."""
        return next(
            program
            for program in self.explored.programs.all
            if program.is_alive and str(program.replica_id) == name
        )

    def vm(self, name: str) -> ExploredVm:
        """Return the running VM of the replica."""
        vms = self.cloud.present.values()
        return next(
            vm for vm in vms if str(vm.replica_id) == name and vm.status is VmStatus.RUNNING
        )

    def fail(self, name: str, facts: Facts = FAILURE) -> None:
        """End the replica's program by a failure of its own."""
        self.explored.programs.exit(self.program(name), dict(facts), OWN)

    def lose(self, name: str) -> None:
        """End the replica's VM without notice."""
        self.vm(name).vanish()

    def reboot(self, name: str, after_s: float = 40.0) -> None:
        vm = self.vm(name)
        self.explored.note_fault(vm, REBOOT)
        for agent in vm.agents:
            agent.power_off(REBOOT)
            self.world.after(after_s, agent.boot)

    def announce(self, name: str, ahead_s: float) -> None:
        """Announce maintenance of the replica's VM in `ahead_s` seconds. The VM stays till then."""
        for agent in self.vm(name).agents:
            agent.announce_early(ahead_s)

    def withdraw(self, name: str) -> None:
        """Announce no maintenance of the replica's VM any more."""
        for agent in self.vm(name).agents:
            agent.withdraw_maintenance()

    def stockout(self, seconds: float, task_type: str | None = None) -> None:
        """Let Google have no VMs, or none for this task type, for this time."""
        until_s = self.world.now_s + seconds
        create = self.cloud.create

        def refuse(job: Job, step: Create, metadata: Mapping[str, str]) -> CreateOutcome:
            is_meant = task_type in (None, step.group.task_type)
            if is_meant and self.world.now_s < until_s:
                return NotCreated(CapacityErrorKind.STOCKOUT, "STOCKOUT", f"none in {step.zone}")
            return create(job, step, metadata)

        self.cloud.create = refuse  # type: ignore[assignment, method-assign]

    @property
    def life_s(self) -> float:
        """How long all machines of the job can run for its `maxCost`."""
        self.world.run(60.0, lambda: self.store.load("j1") is not None)
        cap = self.job.plan.limits.cap
        assert cap is not None
        return float(cap.limit.amount / cap.per_hour * 3600)

    @property
    def ended_s(self) -> float:
        """When the job ended."""
        ended_s = self.explored.examiner.ended_s
        assert ended_s is not None, self.story
        return ended_s

    def lost_work_s(self) -> dict[str, float]:
        """Return how long before the job's end each replica saved or, if it never did, started."""
        saves: dict[str, float] = {}
        for program in self.explored.programs.all:
            saved_s = max(program.saved_s, default=program.started_s)
            name = str(program.replica_id)
            saves[name] = max(saved_s, saves.get(name, 0.0))
        return {name: self.ended_s - saved_s for name, saved_s in saves.items()}

    @contextmanager
    def late_messages(self, delay_s: float) -> Iterator[None]:
        """Delay the messages that agents send within this block."""
        publish = self.cloud.publish
        self.cloud.publish = lambda *message: self.world.after(delay_s, publish, *message)
        yield
        self.cloud.publish = publish

    def check(self) -> None:
        """No invariant over facts was violated."""
        assert not self.world.violations, self.story
