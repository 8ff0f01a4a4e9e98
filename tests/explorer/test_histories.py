"""Histories under every fault profile: no invariant over facts is violated, and every job ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.explorer.agent_host import VirtualRunState
from tests.explorer.history import History
from tests.explorer.processes import VirtualLauncher
from tests.explorer.profiles import PROFILES
from trainmaster.agent.control import state_file
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.control.saving import Saving
from trainmaster.agent.control.state_file import StoredState
from trainmaster.agent.model.vm_config import ReceivedDirective
from trainmaster.core.actions import DeleteJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import DeleteRequested, End, ExitCause, ReplicaExited
from trainmaster.core.model import cap
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import is_member
from trainmaster.core.model.vm_names import job_hash_in
from trainmaster.core.reconcile import desired, plan
from trainmaster.core.rules import evidence, verdict
from trainmaster.core.rules import judge as judging
from trainmaster.core.rules.evidence import Rank
from trainmaster.core.transitions import job_actions, kept_machines
from trainmaster.messaging import agent_messages
from trainmaster.ports import VmOwner
from trainmaster_local.memory.store import MemoryStore

SEEDS = 300 if hypothesis.settings().max_examples > 150 else 4
"""300 per profile in the thorough profile of `make test-all`.

`make explore` explores 20,000 histories.
"""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_histories_violate_no_invariant(name: str) -> None:
    # The only proof of what jobs really cost.
    for seed in range(SEEDS * (4 if name == "caps" else 1)):
        world = History(seed, PROFILES[name]).run()
        assert not world.violations, (
            f"python -m tests.explorer --profile {name} --seeds {seed}:{seed + 1} --trace"
        )


def forget_ends(patch: pytest.MonkeyPatch) -> None:
    """Report that an incarnation is ready, and not how the one before it ended."""
    decode = agent_messages.decode_vm_ready
    patch.setattr(
        agent_messages, "decode_vm_ready", lambda *message: replace(decode(*message), ended=None)
    )


def report_before_the_stop(patch: pytest.MonkeyPatch) -> None:
    """Report that an incarnation is ready while an older program still runs."""
    set_desired = RunState.set_desired

    def set_and_report(
        run_state: RunState, directive: ReceivedDirective, *, is_running: bool
    ) -> None:
        set_desired(run_state, directive, is_running=is_running)
        if directive.action == "hold":
            run_state.report_ready(directive.key)

    patch.setattr(RunState, "set_desired", set_and_report)


def end_savers_at_once(patch: pytest.MonkeyPatch) -> None:
    """End a program that saves as soon as its round ends."""
    patch.setattr(Saving, "patience_s", 0.0)


def take_saves_for_ends(patch: pytest.MonkeyPatch) -> None:
    """Take the exit of a program that was asked to save for an exit of its own."""
    decode = agent_messages.decode_replica_exit

    def decode_as_own(*message: Any) -> ReplicaExited:
        event = decode(*message)
        return replace(event, cause=ExitCause.PROCESS) if event.cause is ExitCause.SAVED else event

    patch.setattr(agent_messages, "decode_replica_exit", decode_as_own)


def cancel_late(patch: pytest.MonkeyPatch) -> None:
    """Cancel a job two minutes after it has cost its cap, and ask its programs to save then. Its
    VMs do not end themselves before.
    """
    patch.setattr(cap, "COST_RESERVE_S", -120)
    patch.setattr(Job, "paid_until", property(lambda _: None))


def delete_live_jobs(patch: pytest.MonkeyPatch) -> None:
    decision = Decision(Rule.LIFECYCLE, Reason.DELETED_BY_USER, text="", action=DeleteJob())
    patch.setitem(judging.ENDED_JOB_RULES, DeleteRequested, lambda *_: decision)


def start_all(patch: pytest.MonkeyPatch) -> None:
    """Start also the members that a round goes without, as soon as they have a VM."""
    patch.setattr(
        desired,
        "may_run",
        lambda job, replica: (
            replica.instance_id is not None
            and not (job.round.is_held and is_member(job.plan, replica.replica_id))
        ),
    )


def count_vms_of_earlier_zones(patch: pytest.MonkeyPatch) -> None:
    count = MemoryStore.count_ready
    patch.setattr(
        MemoryStore,
        "count_ready",
        lambda store, job_id, attempt, _: count(store, job_id, attempt, 0),
    )


def exchange_ranks(patch: pytest.MonkeyPatch) -> None:
    """Take reports of a lost peer for failures of one's own, and the other way round."""
    exchanged = {Rank.OWN: Rank.PEER, Rank.PEER: Rank.OWN}
    rank_of = evidence.rank_of

    def exchanged_rank_of(end: End) -> Rank:
        rank = rank_of(end)
        return exchanged.get(rank, rank)

    for module in (evidence, verdict):
        patch.setattr(module, "rank_of", exchanged_rank_of)


def forget_starts(patch: pytest.MonkeyPatch) -> None:
    """Start a program before the state file says so."""
    patch.setattr(VirtualRunState, "_save", lambda _: None)


def truncate_the_state_file(patch: pytest.MonkeyPatch) -> None:
    """Write a new state file each time, which fails on a full disk."""

    def write(state: StoredState, path: Path) -> None:
        path.write_bytes(state_file._encode(1, json.dumps(asdict(state)).encode()))

    patch.setattr(StoredState, "save", write)


def let_programs_run_on(patch: pytest.MonkeyPatch) -> None:
    """Start the agent again, and leave what the agent before it had started."""
    patch.setattr(VirtualLauncher, "clean_up", lambda _: None)
    patch.setattr(VirtualLauncher, "await_end", lambda _: None)


def commit_whatever_the_set_is(patch: pytest.MonkeyPatch) -> None:
    """Take machines that another job has taken meanwhile."""
    patch.setattr(MemoryStore, "_check_machines", lambda *_: None)


def let_earlier_holders_act(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "holds_machines", property(lambda _: True))


def store_no_instance_id(patch: pytest.MonkeyPatch) -> None:
    """Take a VM that vanishes meanwhile for one that was never requested."""
    taking = kept_machines.taking_replicas
    patch.setattr(
        job_actions,
        "taking_replicas",
        lambda *arguments: tuple(replace(one, instance_id=None) for one in taking(*arguments)),
    )


def judge_no_loss_of_kept_vms(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "judge_loss_while_kept", lambda *_: None)


def own_vms_from_before_a_restore(patch: pytest.MonkeyPatch) -> None:
    """Let a job that took machines own all VMs of its own name."""
    owner_of_vm = MemoryStore.owner_of_vm

    def by_name(store: MemoryStore, name: str) -> VmOwner | None:
        job_ids = store._ids_by_hash.get(job_hash_in(name) or "", ())
        named = next((VmOwner(job_id, job_id) for job_id in job_ids), None)
        return owner_of_vm(store, name) or named

    patch.setattr(MemoryStore, "owner_of_vm", by_name)


def delete_vms_of_the_completed(patch: pytest.MonkeyPatch) -> None:
    """Delete them late, also in a job that keeps its machines."""
    patch.setattr(plan, "_idle_vms", lambda *_: frozenset())


@pytest.mark.parametrize(
    ("break_defence", "profile", "known_seed", "invariants"),
    [
        (end_savers_at_once, "notices", 22, {"killed while it saves"}),
        (take_saves_for_ends, "notices", 14, {"F5 SUCCEEDED without exit 0 of the primary"}),
        (count_vms_of_earlier_zones, "cloud", 6, {"F7 runs too early"}),
        (start_all, "elastic", 0, {"several member sets"}),
        (delete_live_jobs, "users", 1, {"deleted before its end"}),
        (cancel_late, "caps", 10, {"F6 above its maxCost"}),
        (forget_ends, "gang", 5, {"F2 innocent charged", "F2 unpaid"}),
        (exchange_ranks, "gang", 5, {"F2 innocent charged"}),
        (forget_starts, "agents", 0, {"F1 started twice on one machine"}),
        (truncate_the_state_file, "full-disk", 33, {"F1 started twice on one machine"}),
        (let_programs_run_on, "agents", 8, {"two programs on one machine"}),
        (report_before_the_stop, "hangs", 9, {"F1 started beside another round"}),
        (commit_whatever_the_set_is, "kept-takers", 3, {"K1 two live holders"}),
        (let_earlier_holders_act, "kept-takers", 0, {"healthy VM deleted"}),
        (delete_vms_of_the_completed, "kept-takers", 0, {"K2 a kept VM is deleted"}),
        (store_no_instance_id, "kept-losses", 1, {"K3 paid by nobody"}),
        (judge_no_loss_of_kept_vms, "kept-losses", 362, {"K5 a faulty VM is taken"}),
        (own_vms_from_before_a_restore, "kept-restored", 200, {"leak"}),
    ],
)
def test_missing_defence_is_found(
    break_defence: Callable[[pytest.MonkeyPatch], None],
    profile: str,
    known_seed: int,
    invariants: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the explorer draws other numbers, another seed may find it: the search begins with the
    known one.
    """
    break_defence(monkeypatch)
    seeds = (known_seed, *range(60))
    violations = (
        violation
        for seed in seeds
        for violation in History(seed, PROFILES[profile]).run().violations
    )
    assert any(invariant in invariants for invariant, _ in violations)


def test_same_seed_gives_same_history() -> None:
    first, second = (History(7, PROFILES["every"]).run().trace for _ in range(2))
    assert first == second
    assert len(first) > 10
