"""The search for the cause of an exit finds what a comparison with every loss finds, and compares with few of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_charged_exit,
    a_job,
    a_lost_vm,
    a_plan,
    a_replica,
    a_state,
    at,
)
from trainmaster.core.model.exit_policy import Blame
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import EndKind, PastIncarnation, Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.rules import causes
from trainmaster.core.rules.attribution import explains
from trainmaster.core.rules.causes import Causes
from trainmaster.core.rules.explained_charge import explained_charges
from trainmaster.core.timeouts import EARLY_NOTICE_MAX, LOSS_REPORT_DELAY_MAX

EVALUATOR = ReplicaId(TaskType.EVALUATOR, 0)
SIZE = 200

seconds = st.integers(0, 30).map(lambda tens: 10.0 * tens)
"""Few different moments, so that many are equal, or exactly a window apart."""


@st.composite
def past_incarnations(draw: st.DrawFn) -> PastIncarnation:
    ended = draw(seconds)
    kind = draw(st.sampled_from(EndKind))
    return PastIncarnation(
        number=1,
        kind=kind,
        ended_at=at(ended),
        started_at=draw(st.none() | seconds.map(lambda since: at(ended - since))),
        back_at=draw(st.none() | seconds.map(lambda later: at(ended + later))),
        is_charged=draw(st.booleans()),
        signature=draw(st.sampled_from([None, "ValueError at a.py:1", "KeyError at b.py:2"])),
        blame=draw(st.sampled_from(Blame)),
    )


def find_by_comparison(state: State, replica: Replica, ended: PastIncarnation) -> Replica | None:
    """Compare the exit with every loss."""
    if not replica.replica_id.is_in_cluster:
        return None
    losses = [
        (loss.kind is EndKind.EXIT, loss.ended_at, peer.key, peer)
        for peer in state.replicas
        if peer.replica_id != replica.replica_id and peer.replica_id.is_in_cluster
        for loss in peer.past
        if explains(peer, loss, replica, ended)
    ]
    return min(losses, key=lambda loss: loss[:3])[-1] if losses else None


@given(st.lists(st.lists(past_incarnations(), max_size=4), min_size=4, max_size=4), past_incarnations())
def test_search_finds_what_a_comparison_with_every_loss_finds(
    pasts: list[list[PastIncarnation]], ended: PastIncarnation
) -> None:
    replica_ids = (CHIEF, WORKER_0, WORKER_1, EVALUATOR)
    replicas = [a_replica(replica_id, past=tuple(past)) for replica_id, past in zip(replica_ids, pasts, strict=True)]
    state = a_state(*replicas)
    for replica in replicas:
        assert Causes(state).find(replica, ended) == find_by_comparison(state, replica, ended)


@pytest.mark.parametrize(
    ("loss", "is_cause"),
    [
        (a_lost_vm(100 + LOSS_REPORT_DELAY_MAX.total_seconds()), True),
        (a_lost_vm(100.001 + LOSS_REPORT_DELAY_MAX.total_seconds()), False),
        (a_charged_exit(100 + EARLY_NOTICE_MAX.total_seconds(), blame=Blame.OWN), True),
        (a_charged_exit(100.001 + EARLY_NOTICE_MAX.total_seconds(), blame=Blame.OWN), False),
    ],
)
def test_search_ends_with_the_last_loss_that_may_explain_the_exit(loss: PastIncarnation, *, is_cause: bool) -> None:
    peer = a_replica(WORKER_0, past=(loss,))
    cause = Causes(a_state(peer)).find(a_replica(CHIEF), a_charged_exit(100, blame=Blame.PEER))
    assert cause == (peer if is_cause else None)


def gang(past_of: Callable[[int], tuple[PastIncarnation, ...]]) -> State:
    """A job whose worker of each index has these past incarnations."""
    workers = [
        a_replica(ReplicaId(TaskType.WORKER, index), ReplicaState.RESTARTING, incarnation=len(past) + 1, past=past)
        for index in range(SIZE)
        for past in [past_of(index)]
    ]
    return a_state(*workers, job=a_job(JobState.RUNNING, plan=a_plan(SIZE)))


def exits(error: str | None, blame: Blame, times: int) -> Callable[[int], tuple[PastIncarnation, ...]]:
    """The exits of a replica that fails again and again, each a millisecond after those of its peers before it."""

    def past_of(index: int) -> tuple[PastIncarnation, ...]:
        def moment(number: int) -> datetime:
            return at(100 * number + index / 1000)

        return tuple(
            replace(
                a_charged_exit(0, number, blame=blame),
                ended_at=moment(number),
                started_at=moment(number - 1),
                back_at=moment(number) if number < times else None,
                signature=error,
            )
            for number in range(1, times + 1)
        )

    return past_of


@pytest.mark.parametrize(
    ("past_of", "explained"),
    [
        pytest.param(
            lambda index: exits(None, Blame.PEER, 1)(index) if index else (a_lost_vm(100),), SIZE - 1, id="lost VM"
        ),
        pytest.param(exits(None, Blame.PEER, 1), SIZE - 1, id="exits without a known cause"),
        pytest.param(exits(None, Blame.PEER, 5), 5 * SIZE - 1, id="five exits each without a known cause"),
        pytest.param(exits("ValueError at a.py:1", Blame.OWN, 5), 0, id="the same bug in all"),
    ],
)
def test_each_charge_is_compared_with_few_losses_whatever_the_size_of_the_gang(
    past_of: Callable[[int], tuple[PastIncarnation, ...]], explained: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, compared = gang(past_of), 0

    def count(*loss_and_exit: object) -> bool:
        nonlocal compared
        compared += 1
        return explains(*loss_and_exit)  # type: ignore[arg-type]

    monkeypatch.setattr(causes, "explains", count)
    assert len(list(explained_charges(state))) == explained
    assert compared <= 4 * sum(len(replica.past) for replica in state.replicas)
