"""Seeded histories under every kind of fault: no invariant breaks, and everything ends."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from simulator import cases
from simulator.history import HistoryError
from simulator.profiles import CALM, EVERYTHING, MACHINES, PROFILES

SEEDS = 1000
"""Of each profile."""
FOUND = (
    ("replays", 0),  # a VM that went before its agent spoke was never made again: its request id was answered for ever
    ("machines", 125),  # a loss told under an older attempt used up the machine's only key
    ("races", 84),  # a commit did not notice that the job was rerun meanwhile, and the ledger could not be folded
    ("races", 3542),  # a rerun did not notice that a replica was replaced meanwhile
    ("races", 266),  # provision deleted a newer machine of a seat that was done in the state it had read
    ("races", 1015283),  # a job failed by the exit of a life that had been replaced meanwhile
    ("everything", 1157218),  # the job was rerun between the two reads of a loss, which was then of no replica
    ("races", 1113733),  # two VMs of one name confused the simulated training itself
    ("capacity", 6),  # a replica that was done before its vm-ready was handled never counted as ready
)
"""Histories that once broke an invariant, and which defect they had found."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings about what is done on purpose."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_ten_thousand_histories_are_told() -> None:
    assert SEEDS * len(PROFILES) >= 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_no_history_breaks_an_invariant(name: str) -> None:
    states = Counter(cases.case(seed, PROFILES[name]).state.value for seed in range(SEEDS))
    assert states["SUCCEEDED"] > SEEDS / 20, states
    print(f"{name}: {dict(states)}")


@pytest.mark.parametrize(("profile", "seed"), FOUND)
def test_what_was_found_once_stays_repaired(profile: str, seed: int) -> None:
    assert cases.case(seed, PROFILES[profile]).state.is_terminal


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_is_the_same_history(seed: int) -> None:
    first = cases.case(seed, EVERYTHING, digest=True).digest
    assert cases.case(seed, EVERYTHING, digest=True).digest == first
    assert len(first) > 10


def test_different_seeds_are_different_histories() -> None:
    assert len({cases.case(seed, CALM, digest=True).digest for seed in range(20)}) == 20


def test_where_nothing_goes_wrong_every_job_succeeds_and_loses_nothing() -> None:
    for seed in range(100):
        outcome = cases.case(seed, CALM)
        assert outcome.state == "SUCCEEDED"
        assert outcome.lost_s == 0
        assert outcome.attempts == 1
        assert not outcome.verdicts["restart_replica"]


def test_the_faults_do_happen() -> None:
    """A simulator in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen.update(cases.case(seed, EVERYTHING).verdicts)
        seen.update(cases.case(seed, MACHINES).verdicts)
    for verdict in ("restart_replica", "hold_replica", "replace_vm", "rerun_job", "try_elsewhere", "ignore"):
        assert seen[verdict] > 5, (verdict, seen)


def test_a_failing_history_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a flow's bug")

    monkeypatch.setattr("shared.flows.vm_ready.handle", broken)
    with pytest.raises(HistoryError, match=r"python -m simulator --seed 3 --profile calm") as raised:
        cases.case(3, CALM)
    assert "RuntimeError: a flow's bug" in str(raised.value)
    assert "insert" in str(raised.value), "the trace is there"
