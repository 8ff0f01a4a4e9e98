"""What must be true of machine sets, in facts.

A machine set is the VMs that one job after another uses. The job that uses them is its holder. The
set is *kept* between two jobs: its holder has ended, and the next one may take it.

K1  No two live jobs hold one set.
K2  Nobody deletes a healthy VM while it is kept. Excepted is a VM that its replica had given up
    when the job ended, because the set may list it for a moment after that.
K3  Each second of a VM is paid by one job: what its jobs pay for does not overlap, and a next job
    pays from the moment on at which the one before pays for the kept machine no more.
K4  What was released is nobody's: no set is kept after the end of all jobs.
K5  No job takes a VM whose loss or fault a commit has recorded before.

That no program starts beside an older one is examined by the machine (`processes`), and that no VM
is left by each job's examiner.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.explorer.jobs import ExploredJob
from trainmaster.core.events import Event, ExitCause, ReplicaExited, VmLost
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import State
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.reporting.history import read_history
from trainmaster.core.reporting.phases import PAID, Phase, Span, kept_spans, replica_spans

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.world import World
    from trainmaster_local.memory.store import MemoryStore

SKEW: Final = timedelta(seconds=5)
"""How much the clocks of two functions may differ, with what a commit takes."""
FAULTS: Final = (ExitCause.UNFIT, ExitCause.SETUP, ExitCause.VM_STOPPING)
"""Causes of exits that tell a fault of the VM."""
_Paid = tuple[Span, str]
"""A span, and the job that pays."""


def _faulty_vm(event: Event) -> str:
    """Return the id of the VM that is lost, or of which its agent has found a fault; empty: the
    event tells neither.
    """
    match event:
        case VmLost() if event.is_vm_loss:
            return event.subject.vm.instance_id
        case ReplicaExited() if event.cause in FAULTS:
            return event.subject.vm.instance_id
        case _:
            return ""


class MachineSets:
    """Checks of the machine sets that jobs leave to later jobs."""

    def __init__(self, world: World, store: MemoryStore) -> None:
        self._world = world
        self._store = store
        self._faulty: dict[str, LedgerEntry] = {}
        """Instance id → the first entry that records its loss or a fault of it."""
        self._takers: set[str] = set()
        """Ids of the jobs that have taken kept machines."""

    def on_commit(self, entry: LedgerEntry, jobs: Mapping[str, ExploredJob]) -> None:
        """K1: a machine set has at most one holder that lives. K5."""
        states = [job.examiner.state for job in jobs.values() if job.examiner.state]
        live = [state for state in states if not state.job.state.is_terminal]
        held = Counter(state.job.set_id for state in live if state.job.machines)
        for set_id, count in held.items():
            if count > 1:
                self._world.violate("K1 two live holders", set_id)
        for state in live:
            is_taker = state.job.tenure > 1  # the set's second holder, or a later one
            if is_taker and state.job.job_id not in self._takers:
                self._takers.add(state.job.job_id)
                self._examine_taken(state)
        faulty = _faulty_vm(entry.event)
        if faulty:
            self._faulty.setdefault(faulty, entry)

    def _examine_taken(self, state: State) -> None:
        """K5: `state` is that of a job which has just taken kept machines."""
        for replica in state.replicas:
            entry = self._faulty.get(replica.instance_id or "")
            self._world.notes["machines taken by a commit"] += replica.instance_id is not None
            if entry is not None:
                self._world.violate("K5 a faulty VM is taken", state.job.job_id, replica, entry.key)

    def on_delete(self, vm: ExploredVm) -> None:
        """K2: a healthy VM is not deleted while it is kept."""
        loaded = self._store.load(vm.set_id)
        machines = loaded.state.machine_set if loaded else None
        if machines is None or not machines.is_kept:
            return
        is_kept = any(kept.instance_id == vm.instance_id for kept in machines.vms)
        is_kept &= not self._was_given_up(vm, machines)
        if is_kept and vm.status is VmStatus.RUNNING and vm.failed_s is None:
            self._world.violate("K2 a kept VM is deleted", vm, machines.holder)

    def _was_given_up(self, vm: ExploredVm, machines: MachineSet) -> bool:
        """Whether the replica of the holder has another VM, or none."""
        loaded = self._store.load_attempt(machines.holder)
        replicas = loaded.state.replicas if loaded else ()
        return all(replica.instance_id != vm.instance_id for replica in replicas)

    def examine_end(self, jobs: Mapping[str, ExploredJob]) -> None:
        """Check the sets after all jobs have ended, and all kept times are over."""
        paid: dict[tuple[str, object, int], list[_Paid]] = defaultdict(list)
        for job_id in jobs:
            loaded = self._store.load(job_id)
            if loaded is None or loaded.state.job.machines is None:
                continue
            history = read_history(self._store.ledger(job_id))
            assert history
            machines = loaded.state.machine_set
            if machines is not None and machines.is_kept:
                self._world.violate("K4 still kept", machines.set_id)
            spans = [span for span in replica_spans(history) if span.phase in PAID]
            spans += kept_spans(history, machines) if machines else ()
            for span in spans:
                if span.end is not None and span.end <= span.start:
                    continue  # two clocks that differ may order what takes no time otherwise
                vm = (loaded.state.job.set_id, span.replica_id, span.vm_generation)
                paid[vm].append((span, job_id))
        for (set_id, replica_id, generation), spans_of_vm in paid.items():
            self._examine_paid(f"VM {generation} of {replica_id} in {set_id}", spans_of_vm)

    def _examine_paid(self, vm: str, paid: list[_Paid]) -> None:
        paid.sort(key=lambda one: (one[0].start, one[0].end or one[0].start))
        self._world.notes["VMs with several payers"] += len({job_id for _, job_id in paid}) > 1
        for (span, job_id), (following, next_job_id) in pairwise(paid):
            end = span.end or following.start
            if end > following.start + SKEW:
                self._world.violate("K3 paid twice", vm, job_id, span, next_job_id, following)
            is_gap = span.phase is Phase.KEPT and following.start - end > SKEW
            if is_gap and next_job_id != job_id:
                self._world.violate("K3 paid by nobody", vm, job_id, span, next_job_id, following)
