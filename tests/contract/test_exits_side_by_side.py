"""Exits and losses of one job that are judged side by side: the charges equal those of some sequential order.

Each of them is loaded before any other is committed, which is normal after a cold start or with a backlog.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations

import pytest

from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, a_job, a_plan, exited, lost, ready
from trainmaster.core.events import (
    Event,
    ExitCause,
    JobSubmitted,
    ProgramError,
    ProvisioningStarted,
    ReplicaExited,
    VmLost,
    VmReady,
)
from trainmaster.core.ledger import fold
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reconcile.plan import plan
from trainmaster.core.reconcile.steps import Refund
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning.execute_steps import execute_step
from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.memory.bus import MemoryBus
from trainmaster.memory.fleet import MemoryFleet
from trainmaster.memory.store import MemoryStore
from trainmaster.ports import Store

OWN = ProgramError("ValueError", "x", "task.py:1 in f")
PEER_GONE = ProgramError("UnavailableError", "Socket closed", "ops.py:1 in run")
REPLICAS = a_plan(4).replica_ids
TRIALS = 20


@pytest.fixture
def firestore(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    store = FirestoreStore(clients.firestore_client(f"test-{uuid.uuid4().hex[:12]}"))
    yield store
    store.close()


def deps_on(store: Store) -> Deps:
    return Deps(store, MemoryBus(), clock=lambda: datetime.now(UTC), sleep=time.sleep)


def in_job(event: Event, job_id: str) -> Event:
    assert isinstance(event, VmReady | ReplicaExited | VmLost)
    return replace(event, subject=replace(event.subject, job_id=job_id))


def run_job(deps: Deps, job_id: str) -> None:
    """Submit a job of five replicas, all of which are ready."""
    job = a_job(JobState.QUEUED, plan=a_plan(4), job_id=job_id)
    record(JobSubmitted(job, START), deps)
    record(ProvisioningStarted(job_id, START), deps)
    for replica_id in REPLICAS:
        record(in_job(ready(replica_id), job_id), deps)


def charges(store: Store, job_id: str) -> dict[ReplicaId, int]:
    """Return the restarts that are charged after the next provisioning round, by replica."""
    deps = deps_on(store)
    loaded = store.load_attempt(job_id)
    assert loaded is not None
    for step in plan(loaded.state, (), datetime.now(UTC)).steps:
        if isinstance(step, Refund):
            execute_step(step, loaded.state.job, MemoryFleet(), lambda _: {}, deps, Counter())
    loaded = store.load_attempt(job_id)
    assert loaded is not None
    assert fold(store.ledger(job_id)) == loaded.state
    assert loaded.state.job.attempt == 1
    return {replica.replica_id: replica.restarts_used for replica in loaded.state.replicas if replica.restarts_used}


def peers_of(replica_id: ReplicaId) -> list[Event]:
    return [exited(peer, 1, error=PEER_GONE) for peer in REPLICAS if peer != replica_id]


def release_together(events: Sequence[Event], deps: Deps) -> None:
    barrier = threading.Barrier(len(events))

    def handle(event: Event) -> None:
        barrier.wait()
        record(event, deps)

    with ThreadPoolExecutor(len(events)) as pool:
        list(pool.map(handle, events))


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        pytest.param(exited(WORKER_0, 1, error=OWN), {WORKER_0: 1}, id="own failure"),
        pytest.param(lost(WORKER_0), {}, id="preemption"),
    ],
)
def test_failure_released_together_with_its_peers_exits_is_charged_alone(
    firestore: Store, cause: Event, expected: dict[ReplicaId, int]
) -> None:
    deps = deps_on(firestore)
    results: Counter[str] = Counter()
    for trial in range(TRIALS):
        job_id = f"job_{trial}"
        run_job(deps, job_id)
        release_together([in_job(event, job_id) for event in (cause, *peers_of(WORKER_0))], deps)
        results[str(charges(firestore, job_id))] += 1
    assert results == {str(expected): TRIALS}


def test_peers_exits_released_together_without_a_known_cause_cost_one_restart(firestore: Store) -> None:
    """A later loss refunds that restart, as if the exits had been judged one after another."""
    deps = deps_on(firestore)
    run_job(deps, "digits_1")
    release_together(peers_of(WORKER_0), deps)
    assert sum(charges(firestore, "digits_1").values()) == 1
    record(lost(WORKER_0), deps)
    assert charges(firestore, "digits_1") == {}


class _Interleaved:
    """A store that runs other invocations just before the first commit of this one, which has loaded and judged."""

    def __init__(self, store: Store, run_others: Callable[[], None]) -> None:
        self._store, self._run_others = store, run_others

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def commit(self, *args: object, **options: object) -> None:
        run_others, self._run_others = self._run_others, lambda: None
        run_others()
        self._store.commit(*args, **options)  # type: ignore[arg-type]


def record_nested(events: Sequence[Event], deps: Deps) -> None:
    """Load and judge all events in their order, then commit them in the opposite order."""
    if events:
        run_others = _Interleaved(deps.store, lambda: record_nested(events[1:], deps))
        record(events[0], replace(deps, store=run_others))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        pytest.param(exited(WORKER_0, 1, error=OWN), {WORKER_0: 1}, id="own failure"),
        pytest.param(lost(WORKER_0), {}, id="preemption"),
    ],
)
def test_events_loaded_before_any_commit_charge_no_peer(
    cause: Event, expected: dict[ReplicaId, int], order: tuple[int, ...]
) -> None:
    store = MemoryStore()
    deps = deps_on(store)
    run_job(deps, "digits_1")
    events = [cause, exited(CHIEF, 1, error=PEER_GONE), exited(WORKER_1, 1, error=PEER_GONE)]
    record_nested([events[nth] for nth in order], deps)
    assert charges(store, "digits_1") == expected
    explained = [entry for entry in store.ledger("digits_1") if entry.event.kind == "charge_explained"]
    assert {entry.key for entry in explained} == {"1-chief-0-1-charge-explained", "1-worker-1-1-charge-explained"}
    assert all("worker 0" in entry.decision.text or "chief 0" in entry.decision.text for entry in explained)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_stalls_loaded_before_any_commit_cost_one_replica_one_stall(order: tuple[int, ...]) -> None:
    """A program that hangs stops the output of its whole gang, so all programs are ended at about the same time."""
    store = MemoryStore()
    deps = deps_on(store)
    run_job(deps, "digits_1")
    stalls = [
        exited(replica_id, signal=15, cause=ExitCause.STALLED, seconds=100 + nth)
        for nth, replica_id in enumerate((WORKER_0, WORKER_1, CHIEF))
    ]
    record_nested([stalls[nth] for nth in order], deps)
    assert charges(store, "digits_1") == {}
    loaded = store.load_attempt("digits_1")
    assert loaded is not None
    stalled = {replica.replica_id for replica in loaded.state.replicas for ended in replica.past if ended.is_charged}
    assert stalled == {WORKER_0}


def test_of_two_failures_with_different_errors_the_earlier_is_charged() -> None:
    """The later may be the way in which that program fails without its peer."""
    store = MemoryStore()
    deps = deps_on(store)
    run_job(deps, "digits_1")
    other = ProgramError("KeyError", "y", "task.py:9 in g")
    record_nested([exited(WORKER_0, 1, error=OWN), exited(WORKER_1, 1, error=other)], deps)
    assert charges(store, "digits_1") == {WORKER_0: 1}
