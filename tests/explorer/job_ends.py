"""F3 to F6 of `examiner.py`: whether the end of a job agrees with what its programs did.

Every job ends. None is FAILED without a failed program or set-up, and SUCCEEDED is exactly a job
whose primary exited 0. A job with `maxCost` costs no more. It leaves no VM, and its ledger replays
to its stored state.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.explorer.causes import DONE, OWN, PEER, REBOOT, SAVED, STALLED
from tests.explorer.programs import Program
from trainmaster.core.ledger import fold
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.job import Job, JobState, State

if TYPE_CHECKING:
    from tests.explorer.charges import Charges
    from tests.explorer.job_machines import JobMachines
    from tests.explorer.jobs import ExploredJob
    from trainmaster_local.memory.store import MemoryStore

REPORT_S: Final = 60.0
"""How long the report of a program's start may take."""
KNOWN_S: Final = 700.0
"""How long the report of a program's end may take, with all its repetitions."""


class JobEnds:
    """Checks of how a job ended."""

    def __init__(
        self, job: ExploredJob, store: MemoryStore, machines: JobMachines, charges: Charges
    ) -> None:
        self._job = job
        self._world = job.world
        self._store = store
        self._machines = machines
        self._charges = charges

    def examine_success(self, job: Job) -> None:
        """F5: the primary, on all its hosts, exited 0 by itself in the last attempt, or in the one
        before if it had hardly run since: no report of its start may have arrived.
        """
        if job.state is not JobState.SUCCEEDED or job.tuning is not None:
            return
        hosts = self._job.plan.group(self._job.primary.task_type).hosts
        done = Counter(program.key for program in self._done_primaries())
        finished = {attempt for (attempt, _), count in done.items() if count >= hosts}
        has_run_since = any(
            program.replica_id == self._job.primary
            and program.key[0] == job.attempt
            and self._world.now_s - program.started_s > REPORT_S
            for program in self._job.programs.all
        )
        by_the_one_before = job.attempt - 1 in finished and not has_run_since
        if job.attempt not in finished and not by_the_one_before:
            self._world.violate("F5 SUCCEEDED without exit 0 of the primary", dict(done))

    def examine_end(self, state: State, ended_s: float | None) -> None:
        """Check what must be true when all faults have ended long ago."""
        world = self._world
        job = state.job
        if not job.state.is_terminal:
            states = [
                f"{replica.replica_id}:{replica.state}:{replica.incarnation}"
                for replica in state.replicas
            ]
            world.violate("F3 not ended", job.state, job.attempt, *states)
            return
        if leaked := [vm for vm in self._machines.present() if vm.job is self._job]:
            world.violate("leak", *leaked)
        folded = fold(self._store.ledger(job.job_id))
        assert folded
        if folded.job != job or {replica.key: replica for replica in folded.replicas} != {
            replica.key: replica for replica in state.replicas
        }:
            world.violate("replay differs")
        if job.budgets.reruns_used != self._charges.reruns:
            world.violate("reruns", job.budgets.reruns_used, self._charges.reruns)
        if job.state is JobState.FAILED:
            assert ended_s is not None
            self._examine_failure(job, ended_s)
        if job.plan.limits.cap:
            self._examine_cost(job.plan.limits.cap, job.state)
        world.notes[job.state.value] += 1
        world.notes.update(f"end {program.cause}" for program in self._job.programs.all)

    def _examine_cost(self, cap: Cap, state: JobState) -> None:
        """F6: note also how much a cancelled job has left, as time of all its machines."""
        left = float(cap.limit.amount) - self._job.cost
        if left < 0:
            self._world.violate("F6 above its maxCost", self._job.cost, cap)
        if state is JobState.CANCELLED:
            left_s = left / float(cap.per_hour) * 3600
            percent_s = float(cap.limit.amount / cap.per_hour) * 36
            limit = next(
                limit_s
                for limit_s in (120, 180, 240, 300, 600, 1e9)
                if left_s <= max(limit_s, percent_s)
            )
            self._world.notes[f"CANCELLED with at most {limit:g} s left"] += 1
            self._world.notes["CANCELLED after a save"] += any(
                program.cause == SAVED for program in self._job.programs.all
            )

    def _examine_failure(self, job: Job, ended_s: float) -> None:
        """F4, and F5's other half: a failed job had a reason, and its primary had not exited 0 in
        this attempt.
        """
        profile = self._world.profile
        had_failure = any(
            program.cause in (OWN, PEER, STALLED, REBOOT) for program in self._job.programs.all
        )
        had_failure |= any(kind == "setup" for _, _, kind in self._job.faults)
        if not had_failure and not profile.internal and not profile.slow_setup and not job.tuning:
            self._world.violate("F4 FAILED without a failure", job.error_message)
        hosts = self._job.plan.group(self._job.primary.task_type).hosts
        for program in self._done_primaries():
            is_known = (
                program.agent.vm.failed_s is None and (program.ended_s or 0) < ended_s - KNOWN_S
            )
            if is_known and program.key[0] == job.attempt and hosts == 1:
                self._world.violate("F5 the primary had exited 0", program, job.error_message)

    def _done_primaries(self) -> list[Program]:
        return [
            program
            for program in self._job.programs.all
            if program.replica_id == self._job.primary and program.cause == DONE
        ]
