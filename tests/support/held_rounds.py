"""A job of three members whose round is held or runs, and the ends of programs that its verdict
reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_replica, a_state, at, ready
from trainmaster.core.decisions import Decision
from trainmaster.core.events import AllReady, End, Event, ProgramError, ReplicaExited, VmReady
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round
from trainmaster.core.rules.judge import judge

NOW: Final = at(100)
OWN: Final = "trainer/task.py:7 in main"
BUG: Final = ProgramError("ValueError", "bad batch", OWN, OWN)
PEER_LOSS: Final = ProgramError("UnavailableError", "Socket closed", "ops.py:1 in f")
LATE_PEERS: Final = (
    (
        "RuntimeError",
        (
            "[gloo/transport/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to"
            " complete"
        ),
    ),
    ("RuntimeError", "Rank 1 failed to pass monitoredBarrier in 5000 ms"),
    (
        "torch.distributed.DistStoreError",
        "Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
    ),
    ("RuntimeError", "wait timeout after 300000ms, keys: /default_pg/0//1"),
    (
        "RuntimeError",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE)",
    ),
    (
        "jax.errors.JaxRuntimeError",
        "DEADLINE_EXCEEDED: Barrier timed out. Id: x::0. This usually happens because",
    ),
    ("jaxlib.XlaRuntimeError", "UNAVAILABLE: The following tasks are unhealthy"),
)
JAX_ABORT: Final = ProgramError(
    "Aborted", "… because the JAX distributed service detected fatal errors.", frame=""
)
LAUNCHED_KILL: Final = ProgramError(
    "ChildFailedError", "Signal 9 (SIGKILL) received by PID 7", frame=""
)
LAUNCHED_ABORT: Final = ProgramError(
    "ChildFailedError", "Signal 6 (SIGABRT) received by PID 7", frame=""
)
MEMBERS: Final = (CHIEF, WORKER_0, WORKER_1)


def held(
    *replicas: Replica, round_number: int = 2, job: Job | None = None, **fields: object
) -> State:
    """Return a job whose round of this number is held, and whose members are ready for it."""
    job = job or a_job()
    state = Round(
        round_number, is_held=True, began_at=at(10), ordered_at=at(90), stopped_by=WORKER_0
    )
    given = {replica.replica_id: replica for replica in replicas}
    members = [
        given.get(member) or a_replica(member, incarnation=round_number, ordered_at=at(10))
        for member in MEMBERS
    ]
    return a_state(*members, job=replace(job, round=replace(state, **fields)))  # type: ignore[arg-type]


def running(*replicas: Replica, round_number: int = 2, **fields: object) -> State:
    """Return a job whose round of this number runs."""
    state = held(*replicas, round_number=round_number)
    round_ = replace(state.job.round, is_held=False, **fields)  # type: ignore[arg-type]
    return replace(state, job=replace(state.job, round=round_))


def judge_held(state: State, *ends: End) -> Decision:
    """Return the verdict on the round before the held one, of which these ends are known."""
    event = AllReady(state.job.job_id, state.job.attempt, NOW, state.job.round.number, ends)
    return judge(state, event, NOW)


def after(state: State, event: Event, seconds: float = 100) -> State:
    """Return the state that the event, at `at(seconds)`, leads to."""
    return apply(state, evolve(state, judge(state, event, at(seconds)), at(seconds)))


def of_ready(replica_id: ReplicaId, ended: ReplicaExited, *, incarnation: int) -> VmReady:
    """Return a vm-ready that says how the program before ended."""
    return replace(ready(replica_id, incarnation=incarnation), ended=ended)
