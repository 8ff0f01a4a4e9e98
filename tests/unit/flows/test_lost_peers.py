"""Peers are read in pages until one explains an exit: the decision is the one with the whole attempt loaded."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.jobs import CHIEF, START, a_job, a_plan, a_replica, at, exited, ready
from trainmaster.core.actions import HoldReplica
from trainmaster.core.events import ExitCause, ProgramError, ReplicaExited
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.exit_policy import Blame
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import EndKind, PastIncarnation
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import Change
from trainmaster.flows.commit.record import Deps, record
from trainmaster.memory.bus import MemoryBus
from trainmaster.memory.store import MemoryStore
from trainmaster.ports import LOST_PEERS_PAGE

PEERS = 14
"""More than a page."""
MOMENTS = st.sampled_from([0, 30, 60, 90, 120, 121, 150, 180, 240, 300, 301, 330])
OWN_ERROR = ProgramError("ValueError", "x", "task.py:1 in f")
ERRORS = (None, OWN_ERROR, ProgramError("UnavailableError", "gone", "ops.py:1 in run"))


@st.composite
def losses(draw: st.DrawFn) -> tuple[PastIncarnation, ...]:
    """One or two incarnations of a peer that ended; the times grow."""
    times = sorted(draw(st.lists(MOMENTS, min_size=4, max_size=4)))
    kinds = draw(st.lists(st.sampled_from(EndKind), min_size=0, max_size=2))
    return tuple(
        PastIncarnation(
            number,
            kind,
            ended_at=at(times[2 * number - 2]),
            started_at=draw(st.sampled_from([None, at(0)])),
            back_at=at(times[2 * number - 1]) if number < len(kinds) or draw(st.booleans()) else None,
            is_charged=kind is EndKind.EXIT and draw(st.booleans()),
            signature=draw(st.sampled_from([None, OWN_ERROR.signature])),
            blame=draw(st.sampled_from(Blame)),
        )
        for number, kind in enumerate(kinds, start=1)
    )


@st.composite
def exits(draw: st.DrawFn) -> tuple[State, ReplicaExited]:
    pasts = draw(st.lists(losses(), min_size=0, max_size=PEERS))
    chief = a_replica(CHIEF, started_at=draw(st.sampled_from([None, at(60), at(120)])), ordered_at=at(59))
    peers = tuple(
        a_replica(ReplicaId(TaskType.WORKER, index), incarnation=len(past) + 1, past=past)
        for index, past in enumerate(pasts)
    )
    event = exited(CHIEF, 1, error=draw(st.sampled_from(ERRORS)), seconds=draw(MOMENTS))
    cause = draw(st.sampled_from([ExitCause.PROCESS, ExitCause.STALLED, ExitCause.VM_RESTARTED, ExitCause.VM_STOPPING]))
    plan = a_plan(PEERS, disable_retries=draw(st.booleans()))
    return State(a_job(plan=plan), (chief, *peers), whole=True), replace(event, cause=cause)


@given(exits())
def test_decision_is_that_of_the_whole_attempt(case: tuple[State, ReplicaExited]) -> None:
    state, event = case
    store = MemoryStore()
    nothing = counters(None, None)
    first = ready(CHIEF)
    entry = LedgerEntry("digits_1", "first", START, first, judge(state, first, START), nothing, nothing, ())
    store.commit(None, entry, Change(job=state.job, replicas=state.replicas))
    now = at(400)
    deps = Deps(store, MemoryBus(), clock=lambda: now, sleep=lambda _: None)
    recorded = record(event, deps).entry.decision
    expected = judge(state, event, now)
    vms_lost = sum(peer.lost_until is not None for peer in state.replicas)
    if isinstance(expected.action, HoldReplica) and vms_lost >= LOST_PEERS_PAGE:
        assert isinstance(recorded.action, HoldReplica), "any peer of the first page may be named"
    else:
        assert recorded == expected
